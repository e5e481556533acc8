// The tour of @platformatic/kafka: the calls of its README, one line of JSON a step (tests/clients/tours.py says which).
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const RECORDS = 100
const TOPIC_RESOURCE = 2
const SET = 0
const [bootstrap, topic] = process.argv.slice(2)
const groupId = `${topic}-group`
const base = { clientId: 'tour', bootstrapBrokers: bootstrap.split(',') }
const say = (step, what = {}) => console.log(JSON.stringify({ step, ...what }))

const admin = new Admin(base)
const wanted = { topics: [topic], partitions: 3, replicas: 3 }
await admin.createTopics(wanted)
const again = await admin.createTopics(wanted).then(() => false, error => JSON.stringify(error.errors ?? []).includes('TOPIC_ALREADY_EXISTS'))
say('created', { again })
const { partitions } = (await admin.metadata({ topics: [topic], forceUpdate: true })).topics.get(topic)
say('described', { partitions: partitions.length, replicas: partitions[0].replicas.length })

const producer = new Producer({ ...base, serializers: stringSerializers })
for (const [half, compression] of ['none', 'gzip'].entries()) {
  const numbers = Array.from({ length: RECORDS / 2 }, (_, index) => half * RECORDS / 2 + index)
  await producer.send({
    acks: -1,
    compression,
    messages: numbers.map(each => ({ topic, key: `key ${each}`, value: `value ${each}`, headers: { number: `${each}` } }))
  })
}
await producer.close()
say('produced', { records: RECORDS })

async function read (groupId, options) {
  const records = []
  const consumer = new Consumer({ ...base, groupId, deserializers: stringDeserializers, ...options })
  const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false })
  for await (const message of stream) {
    records.push([message.key, message.value, message.headers.get('number')])
    await message.commit()
    if (records.length === RECORDS) break
  }
  await consumer.close(true)
  return records
}
say('read', { records: await read(groupId) })
const [{ topics: [{ partitions: offsets }] }] = await admin.listConsumerGroupOffsets({ groups: [groupId] })
say('committed', { offsets: offsets.reduce((sum, { committedOffset }) => sum + Number(committedOffset), 0) })
// the same by KIP-848's protocol
const modern = `${topic}-modern`
say('coordinated', { records: (await read(modern, { groupProtocol: 'consumer' })).length })

const listed = (await admin.listGroups()).has(groupId)
const state = (await admin.describeGroups({ groups: [groupId] })).get(groupId).state
say('grouped', { listed, state: state[0].toUpperCase() + state.slice(1).toLowerCase() })

const resource = { resourceType: TOPIC_RESOURCE, resourceName: topic }
await admin.incrementalAlterConfigs({
  resources: [{ ...resource, configs: [{ name: 'retention.ms', configOperation: SET, value: '3600000' }] }]
})
// another broker may answer, which hears of the change a moment later
let value
for (const began = Date.now(); value !== '3600000' && Date.now() - began < 10_000;) {
  const [{ configs }] = await admin.describeConfigs({ resources: [{ ...resource, configurationKeys: ['retention.ms'] }] })
  value = configs[0].value
}
say('configured', { 'retention.ms': value })
const [{ results }] = await admin.describeLogDirs({ topics: [{ name: topic, partitions: [0, 1, 2] }] })
say('located', { partitions: results[0].topics[0].partitions.length })
await admin.createPartitions({ topics: [{ name: topic, count: 4, assignments: null }] })
say('grown', { partitions: 4 })
const ends = await admin.listOffsets({ topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp: -1n }] }] })
const [{ offset }] = ends[0].partitions
const purged = await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset }] }] })
say('purged', { emptied: purged[0].partitions[0].lowWatermark === offset && offset > 0n })
await admin.deleteGroups({ groups: [groupId, modern] })
say('ungrouped')
await admin.deleteTopics({ topics: [topic] })
say('deleted')
await admin.close()

// The tour of kafkajs: the calls of its README, one line of JSON a step (tests/clients/tours.py says which).
import kafkajs from 'kafkajs'

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs
const RECORDS = 100
const [bootstrap, topic] = process.argv.slice(2)
const groupId = `${topic}-group`
const kafka = new Kafka({ clientId: 'tour', brokers: bootstrap.split(','), logLevel: logLevel.WARN })
const say = (step, what = {}) => console.log(JSON.stringify({ step, ...what }))

const admin = kafka.admin()
await admin.connect()
const wanted = { topics: [{ topic, numPartitions: 3, replicationFactor: 3 }], waitForLeaders: true }
await admin.createTopics(wanted)
// kafkajs returns false when a topic exists
say('created', { again: !(await admin.createTopics(wanted)) && (await admin.listTopics()).includes(topic) })
const { topics: [{ partitions }] } = await admin.fetchTopicMetadata({ topics: [topic] })
say('described', { partitions: partitions.length, replicas: partitions[0].replicas.length })
const { brokers } = await admin.describeCluster()
if (brokers.length !== 3) throw new Error(`the cluster has ${brokers.length} brokers`)

const producer = kafka.producer({ idempotent: true })
await producer.connect()
for (const [half, compression] of [CompressionTypes.None, CompressionTypes.GZIP].entries()) {
  const numbers = Array.from({ length: RECORDS / 2 }, (_, index) => half * RECORDS / 2 + index)
  await producer.send({
    topic,
    acks: -1,
    compression,
    messages: numbers.map(each => ({ key: `key ${each}`, value: `value ${each}`, headers: { number: `${each}` } }))
  })
}
await producer.disconnect()
say('produced', { records: RECORDS })

const read = async () => {
  const records = []
  const consumer = kafka.consumer({ groupId })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const all = new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      eachMessage: async ({ message }) => {
        records.push([message.key, message.value, message.headers.number].map(String))
        if (records.length === RECORDS) resolve()
      }
    })
  })
  await all
  // it commits what it has processed when it leaves
  await consumer.disconnect()
  return records
}
const committed = async () => {
  const [{ partitions: offsets }] = await admin.fetchOffsets({ groupId, topics: [topic] })
  return offsets.reduce((sum, { offset }) => sum + Number(offset), 0)
}
say('read', { records: await read() })
say('committed', { offsets: await committed() })

const listed = (await admin.listGroups()).groups.some(each => each.groupId === groupId)
const { groups: [{ state }] } = await admin.describeGroups([groupId])
say('grouped', { listed, state })

// which commits the offset -2, "from the beginning"
await admin.resetOffsets({ groupId, topic, earliest: true })
say('reset', { records: (await read()).length })

const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] })
// another broker may answer, which hears of the change a moment later
let value
for (const began = Date.now(); value !== '3600000' && Date.now() - began < 10_000;) {
  const { resources } = await admin.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }] })
  value = resources[0].configEntries[0].configValue
}
say('configured', { 'retention.ms': value })
await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
say('grown', { partitions: 4 })
const [{ partition, high }] = (await admin.fetchTopicOffsets(topic)).filter(each => each.partition === 0)
await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: high }] })
const [{ low }] = (await admin.fetchTopicOffsets(topic)).filter(each => each.partition === 0)
say('purged', { emptied: low === high && high !== '0' })
await admin.deleteGroups([groupId])
say('ungrouped')
await admin.deleteTopics({ topics: [topic] })
say('deleted')
await admin.disconnect()

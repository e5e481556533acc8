// sarama's tour: the calls of its examples, one line of JSON a step (tests/clients/tours.py says which).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const records = 100

func must(err error, where string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", where, err)
		os.Exit(1)
	}
}

func say(step string, what map[string]any) {
	what["step"] = step
	line, err := json.Marshal(what)
	must(err, step)
	fmt.Println(string(line))
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_9_0_0
	config.ClientID = "tour"
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func main() {
	brokers, topic := strings.Split(os.Args[1], ","), os.Args[2]
	group := topic + "-group"
	admin, err := sarama.NewClusterAdmin(brokers, settings())
	must(err, "admin")
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 3}
	must(admin.CreateTopic(topic, detail, false), "create")
	again := admin.CreateTopic(topic, detail, false)
	say("created", map[string]any{"again": errors.Is(again, sarama.ErrTopicAlreadyExists)})
	found, err := admin.DescribeTopics([]string{topic})
	must(err, "describe")
	say("described", map[string]any{
		"partitions": len(found[0].Partitions), "replicas": len(found[0].Partitions[0].Replicas)})
	_, controller, err := admin.DescribeCluster()
	must(err, "describe the cluster")
	if controller <= 0 {
		must(fmt.Errorf("controller %d", controller), "describe the cluster")
	}

	for half, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP} {
		produce(brokers, topic, half, codec)
	}
	say("produced", map[string]any{"records": records})
	consume(brokers, topic, group)
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2}})
	must(err, "offsets")
	total := int64(0)
	for _, each := range offsets.Blocks[topic] {
		total += each.Offset
	}
	say("committed", map[string]any{"offsets": total})
	administer(admin, brokers, topic, group)
	must(admin.DeleteTopic(topic), "delete")
	say("deleted", map[string]any{})
}

func produce(brokers []string, topic string, half int, codec sarama.CompressionCodec) {
	config := settings()
	config.Producer.Compression = codec
	producer, err := sarama.NewSyncProducer(brokers, config)
	must(err, "producer")
	messages := []*sarama.ProducerMessage{}
	for number := half * records / 2; number < (half+1)*records/2; number++ {
		text := strconv.Itoa(number)
		messages = append(messages, &sarama.ProducerMessage{Topic: topic,
			Key: sarama.StringEncoder("key " + text), Value: sarama.StringEncoder("value " + text),
			Headers: []sarama.RecordHeader{{Key: []byte("number"), Value: []byte(text)}}})
	}
	must(producer.SendMessages(messages), "send")
	must(producer.Close(), "close the producer")
}

type member struct {
	read chan []string
}

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			session.Commit()
			m.read <- []string{string(message.Key), string(message.Value), string(message.Headers[0].Value)}
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(brokers []string, topic, group string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	consumers, err := sarama.NewConsumerGroup(brokers, group, settings())
	must(err, "consumer group")
	reader := member{make(chan []string, records)}
	done := make(chan error, 1)
	go func() { done <- consumers.Consume(ctx, []string{topic}, reader) }()
	read := [][]string{}
	for len(read) < records {
		select {
		case each := <-reader.read:
			read = append(read, each)
		case err := <-done:
			must(fmt.Errorf("ended after %d records: %w", len(read), err), "consume")
		}
	}
	must(consumers.Close(), "close the consumer")
	say("read", map[string]any{"records": read})
}

func administer(admin sarama.ClusterAdmin, brokers []string, topic, group string) {
	groups, err := admin.ListConsumerGroups()
	must(err, "list groups")
	_, listed := groups[group]
	described, err := admin.DescribeConsumerGroups([]string{group})
	must(err, "describe groups")
	say("grouped", map[string]any{"listed": listed, "state": described[0].State})

	value := "3600000"
	must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}, false), "alter")
	// another broker may answer, which hears of the change a moment later
	shown := ""
	for began := time.Now(); shown != value && time.Since(began) < 10*time.Second; {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{
			Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
		must(err, "describe settings")
		shown = entries[0].Value
	}
	say("configured", map[string]any{"retention.ms": shown})

	client, err := sarama.NewClient(brokers, settings())
	must(err, "client")
	defer client.Close()
	folders, err := admin.DescribeLogDirs([]int32{client.Brokers()[0].ID()})
	must(err, "describe folders")
	held := 0
	for _, each := range folders[client.Brokers()[0].ID()] {
		for _, other := range each.Topics {
			if other.Topic == topic {
				held += len(other.Partitions)
			}
		}
	}
	say("located", map[string]any{"partitions": held})
	must(admin.CreatePartitions(topic, 4, nil, false), "grow")
	say("grown", map[string]any{"partitions": 4})
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	must(err, "the end")
	must(admin.DeleteRecords(topic, map[int32]int64{0: end}), "delete records")
	start, err := client.GetOffset(topic, 0, sarama.OffsetOldest)
	must(err, "the start")
	say("purged", map[string]any{"emptied": start == end && end > 0})
	must(admin.DeleteConsumerGroup(group), "delete the group")
	say("ungrouped", map[string]any{})
}

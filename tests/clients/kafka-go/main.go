// kafka-go's tour: its README's calls, one line of JSON a step (tests/clients/tours.py says which).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
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

func main() {
	brokers, topic := strings.Split(os.Args[1], ","), os.Args[2]
	group := topic + "-group"
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	conn, err := kafka.Dial("tcp", brokers[0])
	must(err, "dial")
	defer conn.Close()
	controller, err := conn.Controller()
	must(err, "controller")
	leader, err := kafka.Dial("tcp", net.JoinHostPort(controller.Host, strconv.Itoa(controller.Port)))
	must(err, "dial the controller")
	defer leader.Close()
	must(leader.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: 3, ReplicationFactor: 3}), "create")
	again := leader.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: 3, ReplicationFactor: 3})
	say("created", map[string]any{"again": again == nil || again == kafka.TopicAlreadyExists})

	client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 20 * time.Second}
	describe(ctx, conn, client, topic)
	produce(ctx, brokers, topic)
	consume(ctx, brokers, topic, group)
	offsets, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: group, Topics: map[string][]int{topic: {0, 1, 2}}})
	must(err, "offset fetch")
	total := int64(0)
	for _, each := range offsets.Topics[topic] {
		total += each.CommittedOffset
	}
	say("committed", map[string]any{"offsets": total})
	admin(ctx, client, topic, group)
	must(leader.DeleteTopics(topic), "delete")
	say("deleted", map[string]any{})
}

func describe(ctx context.Context, conn *kafka.Conn, client *kafka.Client, topic string) {
	// The connection's own look-up does not wait for leaders; the controller names them a moment later.
	for {
		found, err := conn.ReadPartitions(topic)
		if err == nil && len(found) == 3 && found[0].Leader.Port != 0 {
			say("described", map[string]any{"partitions": len(found), "replicas": len(found[0].Replicas)})
			break
		}
		if ctx.Err() != nil {
			must(fmt.Errorf("%v %v", found, err), "partitions")
		}
		time.Sleep(50 * time.Millisecond)
	}
	_, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	must(err, "metadata")
	_, err = client.ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	must(err, "api versions")
}

func produce(ctx context.Context, brokers []string, topic string) {
	for half, codec := range []kafka.Compression{0, kafka.Gzip} {
		writer := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: topic, Balancer: &kafka.Hash{},
			RequiredAcks: kafka.RequireAll, Compression: codec, BatchTimeout: 10 * time.Millisecond}
		messages := []kafka.Message{}
		for number := half * records / 2; number < (half+1)*records/2; number++ {
			text := strconv.Itoa(number)
			messages = append(messages, kafka.Message{Key: []byte("key " + text), Value: []byte("value " + text),
				Headers: []kafka.Header{{Key: "number", Value: []byte(text)}}})
		}
		must(writer.WriteMessages(ctx, messages...), "write")
		must(writer.Close(), "close the writer")
	}
	say("produced", map[string]any{"records": records})
}

func consume(ctx context.Context, brokers []string, topic, group string) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, Topic: topic, GroupID: group,
		StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond})
	read := [][]string{}
	for len(read) < records {
		message, err := reader.FetchMessage(ctx)
		must(err, "fetch")
		read = append(read, []string{string(message.Key), string(message.Value), string(message.Headers[0].Value)})
		must(reader.CommitMessages(ctx, message), "commit")
	}
	must(reader.Close(), "close the reader")
	say("read", map[string]any{"records": read})
}

func admin(ctx context.Context, client *kafka.Client, topic, group string) {
	groups, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	must(err, "list groups")
	listed := false
	for _, each := range groups.Groups {
		listed = listed || each.GroupID == group
	}
	described, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	must(err, "describe groups")
	must(described.Groups[0].Error, "describe the group")
	say("grouped", map[string]any{"listed": listed, "state": described.Groups[0].GroupState})

	altered, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{ResourceType: kafka.ResourceTypeTopic,
			ResourceName: topic, Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms",
				Value: "3600000", ConfigOperation: kafka.ConfigOperationSet}}}}})
	must(err, "alter settings")
	must(altered.Resources[0].Error, "alter the setting")
	// another broker may answer, which hears of the change a moment later
	value := ""
	for began := time.Now(); value != "3600000" && time.Since(began) < 10*time.Second; {
		settings, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic,
				ResourceName: topic, ConfigNames: []string{"retention.ms"}}}})
		must(err, "describe settings")
		must(settings.Resources[0].Error, "describe the settings")
		value = settings.Resources[0].ConfigEntries[0].ConfigValue
	}
	say("configured", map[string]any{"retention.ms": value})

	grown, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 4}}})
	must(err, "create partitions")
	must(grown.Errors[topic], "grow the topic")
	say("grown", map[string]any{"partitions": 4})

	gone, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	must(err, "delete groups")
	must(gone.Errors[group], "delete the group")
	say("ungrouped", map[string]any{})
}

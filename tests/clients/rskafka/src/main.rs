//! rskafka's tour: its README's calls, one line of JSON a step (tests/clients/tours.py says which). It knows no groups.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::Utc;
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use serde_json::{json, Value};

const RECORDS: usize = 100;
const TIMEOUT_MS: i32 = 20_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn say(step: &str, mut what: Value) {
    what["step"] = json!(step);
    println!("{what}");
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (bootstrap, topic) = (&arguments[1], &arguments[2]);
    let brokers = bootstrap.split(',').map(str::to_owned).collect();
    let client = ClientBuilder::new(brokers).build().await?;
    tokio::time::timeout(Duration::from_secs(60), tour(&client, topic)).await?
}

async fn tour(client: &Client, topic: &str) -> Outcome<()> {
    let controller = client.controller_client()?;
    controller.create_topic(topic, 3, 3, TIMEOUT_MS).await?;
    let again = controller.create_topic(topic, 3, 3, TIMEOUT_MS).await;
    say("created", json!({"again": format!("{again:?}").contains("TopicAlreadyExists")}));
    let topics = client.list_topics().await?;
    let found = topics.iter().find(|each| each.name == topic).ok_or("the topic is not listed")?;
    say("described", json!({"partitions": found.partitions.len(), "replicas": 3}));

    let mut partitions = Vec::new();
    for number in 0..3 {
        partitions.push(client.partition_client(topic, number, UnknownTopicHandling::Retry).await?);
    }
    for half in 0..2 {
        let codec = if half == 0 { Compression::NoCompression } else { Compression::Gzip };
        for (number, partition) in partitions.iter().enumerate() {
            let own = (half * RECORDS / 2..(half + 1) * RECORDS / 2).filter(|each| each % 3 == number);
            let records = own.map(|each| Record {
                key: Some(format!("key {each}").into_bytes()),
                value: Some(format!("value {each}").into_bytes()),
                headers: BTreeMap::from([("number".to_owned(), each.to_string().into_bytes())]),
                timestamp: Utc::now(),
            });
            partition.produce(records.collect(), codec).await?;
        }
    }
    say("produced", json!({"records": RECORDS}));

    let mut read = Vec::new();
    for partition in &partitions {
        let (mut next, end) =
            (partition.get_offset(OffsetAt::Earliest).await?, partition.get_offset(OffsetAt::Latest).await?);
        while next < end {
            let (records, _) = partition.fetch_records(next, 1..1_000_000, 1_000).await?;
            for each in records {
                next = each.offset + 1;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (key, value) = (each.record.key.unwrap_or_default(), each.record.value.unwrap_or_default());
                read.push(json!([text(&key), text(&value), text(&each.record.headers["number"])]));
            }
        }
    }
    say("read", json!({"records": read}));
    let end = partitions[0].get_offset(OffsetAt::Latest).await?;
    partitions[0].delete_records(end, TIMEOUT_MS).await?;
    let start = partitions[0].get_offset(OffsetAt::Earliest).await?;
    say("purged", json!({"emptied": start == end && end > 0}));
    controller.delete_topic(topic, TIMEOUT_MS).await?;
    say("deleted", json!({}));
    Ok(())
}

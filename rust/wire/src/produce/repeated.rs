//! Partitions and topics that a request names repeatedly.
//!
//! Kafka collects a request's data by partition, so the last batch of a partition counts, and the
//! reply, collected by topic, names each partition once.

use std::collections::HashMap;

use super::request::{ProduceRequest, ProduceTopic};

/// Up to this many names or indexes are compared pairwise; more are sorted.
const COMPARED_MAX: usize = 32;

impl ProduceRequest {
    /// Keeps each topic and partition once, with a partition's last batch. `frame` is the
    /// request's. Topics keep their order; a topic's partitions are in the order of their last
    /// batches. A small request without repetitions is unchanged, without allocation.
    pub fn merge_repeated(&mut self, frame: &[u8]) {
        if !self.surely_names_each_once(frame) {
            self.rebuild(frame);
        }
    }

    fn surely_names_each_once(&self, frame: &[u8]) -> bool {
        let name = |topic: &ProduceTopic| topic.name.of(frame);
        let partitions_differ = self.topics.iter().all(|topic| {
            let partitions = self.partitions_of(topic);
            partitions.is_sorted_by(|one, next| one.index < next.index)
                || all_differ(partitions, |one, other| one.index == other.index)
        });
        partitions_differ && all_differ(&self.topics, |one, other| name(one) == name(other))
    }

    fn rebuild(&mut self, frame: &[u8]) {
        let mut by_name = HashMap::with_capacity(self.topics.len());
        let mut topics: Vec<ProduceTopic> = Vec::with_capacity(self.topics.len());
        let mut places = Vec::with_capacity(self.partitions.len());
        for topic in &self.topics {
            let known = *by_name.entry(topic.name.of(frame)).or_insert(topics.len());
            if known == topics.len() {
                topics.push(ProduceTopic {
                    partition_count: 0,
                    ..*topic
                });
            }
            for (at, partition) in (topic.first_partition..).zip(self.partitions_of(topic)) {
                places.push((known, partition.index, at));
            }
        }
        places.sort_unstable();
        let mut last_of_each = Vec::with_capacity(places.len());
        for (position, &(topic, index, at)) in places.iter().enumerate() {
            let next = places.get(position + 1);
            if next.is_none_or(|next| (next.0, next.1) != (topic, index)) {
                last_of_each.push((topic, at));
            }
        }
        last_of_each.sort_unstable();
        let mut partitions = Vec::with_capacity(last_of_each.len());
        for (topic, at) in last_of_each {
            if topics[topic].partition_count == 0 {
                topics[topic].first_partition = partitions.len();
            }
            topics[topic].partition_count += 1;
            let mut partition = self.partitions[at];
            partition.topic = topic;
            partitions.push(partition);
        }
        for topic in topics.iter_mut().filter(|topic| topic.partition_count == 0) {
            topic.first_partition = partitions.len();
        }
        self.topics = topics;
        self.partitions = partitions;
    }
}

fn all_differ<T>(items: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    let differs_from_those_before =
        |at: usize| items[..at].iter().all(|one| !same(one, &items[at]));
    items.len() <= COMPARED_MAX && (1..items.len()).all(differs_from_those_before)
}

#[cfg(test)]
mod tests {
    use super::super::request::{TopicToProduce, encode_request};
    use super::*;

    /// (topic, partition, records) of a request, as decoded and merged.
    fn merged(topics: &[(&str, Vec<(i32, String)>)]) -> Vec<(String, i32, String)> {
        let mut borrowed = Vec::new();
        for (_, parts) in topics {
            let parts = parts.iter();
            let parts = parts.map(|(index, data)| (*index, Some(data.as_bytes())));
            borrowed.push(parts.collect::<Vec<_>>());
        }
        let to_produce: Vec<TopicToProduce<'_>> = topics
            .iter()
            .zip(&borrowed)
            .map(|((name, _), partitions)| TopicToProduce { name, partitions })
            .collect();
        let mut frame = Vec::new();
        encode_request(&mut frame, 9, None, 1, 0, &to_produce);
        let mut request = ProduceRequest::default();
        request.decode(&frame, 0, 9).unwrap();
        request.merge_repeated(&frame);
        let mut found = Vec::new();
        for (position, topic) in request.topics.iter().enumerate() {
            for partition in request.partitions_of(topic) {
                assert_eq!(partition.topic, position);
                let records = partition.records.unwrap().text(&frame).to_owned();
                let name = topic.name.text(&frame).to_owned();
                found.push((name, partition.index, records));
            }
        }
        assert_eq!(found.len(), request.partitions.len());
        found
    }

    #[test]
    fn last_batch_of_a_repeated_partition_counts_across_topic_entries() {
        let part = |index: i32, data: &str| (index, data.to_owned());
        let found = merged(&[
            ("a", vec![part(0, "old"), part(1, "one"), part(0, "newer")]),
            ("empty", vec![]),
            ("b", vec![part(0, "other")]),
            ("a", vec![part(0, "newest"), part(-1, "odd")]),
        ]);
        let expected = [
            ("a", 1, "one"),
            ("a", 0, "newest"),
            ("a", -1, "odd"),
            ("b", 0, "other"),
        ];
        let expected = expected.map(|(name, index, data)| (name.into(), index, data.into()));
        assert_eq!(found, expected);
    }

    #[test]
    fn sorted_and_quadratic_merging_agree() {
        for count in [1, 2, 31, 32, 33, 500] {
            for repeated in [false, true] {
                // Neither sorted nor in order.
                let mut parts: Vec<(i32, String)> = (0..count)
                    .map(|at| (at * 7 % count, format!("{at}")))
                    .collect();
                if count % 7 == 0 {
                    continue;
                }
                if repeated {
                    parts.push((0, "last".into()));
                }
                let found = merged(&[("t", parts)]);
                let of_zero: Vec<_> = found.iter().filter(|(_, index, _)| *index == 0).collect();
                let records = if repeated { "last" } else { "0" };
                assert_eq!(found.len() as i32, count);
                assert_eq!(of_zero.len(), 1);
                assert_eq!(of_zero[0].2, records);
            }
        }
    }
}

//! Recognises connections of other brokers.
//!
//! A broker fetches with its id and sends requests that only brokers send. From then on its
//! connection has its own reply memory ([`crate::admission`]), and its long requests go first
//! ([`crate::heavy`]). Clients can pose as brokers only on the brokers' own listener.

use pyrklog_wire::api::{ApiRow, key};

use crate::admission;
use crate::client::Client;
use crate::context::Context;

/// Since this version a Fetch names its replica last, in a tagged field.
const FETCH_NAMES_REPLICA_LAST_SINCE: i16 = 15;

/// First version of OffsetForLeaderEpoch that names the replica.
const OFFSET_FOR_LEADER_EPOCH_NAMES_REPLICA_SINCE: i16 = 3;

/// Checks for a broker before the request is decoded.
pub fn recognise(cx: &Context, client: &mut Client, row: &ApiRow, api_version: i16, body: &[u8]) {
    let Some(cluster) = &cx.services.config.cluster else {
        return;
    };
    if client.context.is_broker || *client.context.listener != *cluster.listener {
        return;
    }
    let is_broker = row.is_between_brokers
        || replica_of(row.key, api_version, body)
            .is_some_and(|id| id != cx.services.config.node_id && cx.image.broker(id).is_some());
    if is_broker {
        admission::become_brokers(cx, client);
    }
}

/// The request's replica id; `None` for a consumer.
fn replica_of(api_key: i16, api_version: i16, body: &[u8]) -> Option<i32> {
    let bytes = match api_key {
        key::FETCH if api_version >= FETCH_NAMES_REPLICA_LAST_SINCE => replica_state(body)?,
        key::FETCH | key::LIST_OFFSETS => body.first_chunk()?,
        key::OFFSET_FOR_LEADER_EPOCH
            if api_version >= OFFSET_FOR_LEADER_EPOCH_NAMES_REPLICA_SINCE =>
        {
            body.first_chunk()?
        }
        _ => return None,
    };
    let id = i32::from_be_bytes(*bytes);
    (id >= 0).then_some(id)
}

/// The id in ReplicaState if that is the last field: tag, length, id, broker epoch, and no tagged
/// field inside.
fn replica_state(body: &[u8]) -> Option<&[u8; 4]> {
    const TAG: u8 = 1;
    const LEN: u8 = 4 + 8 + 1;
    match body.last_chunk::<{ 2 + LEN as usize }>()? {
        [TAG, LEN, rest @ .., 0] => rest.first_chunk(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrklog_wire::fetch::FetchRequestToWrite;

    #[test]
    fn the_replica_of_a_fetch_is_found_in_every_version() {
        for version in 4..=17 {
            for (replica_id, expected) in [(7, Some(7)), (0, Some(0)), (-1, None), (-2, None)] {
                let request = FetchRequestToWrite {
                    replica_id,
                    replica_epoch: if replica_id < 0 { -1 } else { 99 },
                    ..FetchRequestToWrite::default()
                };
                let mut body = Vec::new();
                request.encode(&mut body, version);
                let found = replica_of(key::FETCH, version, &body);
                assert_eq!(found, expected, "version {version}");
            }
        }
        assert_eq!(replica_of(key::FETCH, 17, &[0; 14]), None);
        assert_eq!(replica_of(key::LIST_OFFSETS, 2, &[0, 0]), None);
    }
}

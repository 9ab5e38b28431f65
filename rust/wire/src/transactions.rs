//! A producer's requests about transactions: FindCoordinator 1 to 3, InitProducerId 0 to 4,
//! AddPartitionsToTxn 0 to 3, EndTxn 0 to 4, ListTransactions 0.
//!
//! Version notes: FindCoordinator 3, InitProducerId 2, AddPartitionsToTxn 3, EndTxn 3 flexible;
//! InitProducerId 3 the producer's former id (KIP-360). Later versions of the first four belong to
//! several ids at once, to brokers, or to transaction version 2.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::error::Result;
use crate::error_code::ErrorCode;
use crate::message::{Field, body, fields};
use crate::reader::Reader;
use crate::writer::Writer;

/// The key of FindCoordinator is a transactional id.
pub const TRANSACTION_KEY: i8 = 1;

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FindCoordinatorRequest<'a> {
        pub key: &'a str,
        /// 0 group, 1 transactional id.
        pub key_type: i8,
    }
}

body!(request FIND_COORDINATOR from 1: FindCoordinatorRequest<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FindCoordinatorResponse<'a> {
        pub throttle_ms: i32,
        pub error_code: ErrorCode,
        pub error_message: Option<&'a str>,
        pub node_id: i32,
        pub host: &'a str,
        pub port: i32,
    }
}

body!(response FIND_COORDINATOR from 1: FindCoordinatorResponse<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct InitProducerIdRequest<'a> {
        /// `None` for a producer without transactions.
        pub transactional_id: Option<&'a str>,
        pub timeout_ms: i32,
        /// The former id, -1 for none.
        pub producer_id: i64 [in 3.., else -1],
        /// The former epoch, -1 for none.
        pub producer_epoch: i16 [in 3.., else -1],
    }
}

body!(request INIT_PRODUCER_ID from 0: InitProducerIdRequest<'a>);

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitProducerIdResponse {
        pub throttle_ms: i32,
        pub error_code: ErrorCode,
        pub producer_id: i64,
        pub producer_epoch: i16,
    }
}

body!(response INIT_PRODUCER_ID from 0: InitProducerIdResponse);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AddPartitionsRequest<'a> {
        pub transactional_id: &'a str,
        pub producer_id: i64,
        pub producer_epoch: i16,
        pub topics: Vec<AddPartitionsTopic<'a>>,
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AddPartitionsTopic<'a> {
        pub name: &'a str,
        pub partitions: Vec<i32>,
    }
}

body!(request ADD_PARTITIONS_TO_TXN from 0: AddPartitionsRequest<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AddPartitionsResponse<'a> {
        pub throttle_ms: i32,
        pub topics: Vec<AddPartitionsTopicResponse<'a>>,
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AddPartitionsTopicResponse<'a> {
        pub name: &'a str,
        pub partitions: Vec<AddPartitionsPartitionResponse>,
    }
}

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AddPartitionsPartitionResponse {
        pub index: i32,
        pub error_code: ErrorCode,
    }
}

body!(response ADD_PARTITIONS_TO_TXN from 0: AddPartitionsResponse<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EndTxnRequest<'a> {
        pub transactional_id: &'a str,
        pub producer_id: i64,
        pub producer_epoch: i16,
        /// Commit; else abort.
        pub committed: bool,
    }
}

body!(request END_TXN from 0: EndTxnRequest<'a>);

fields! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EndTxnResponse {
        pub throttle_ms: i32,
        pub error_code: ErrorCode,
    }
}

body!(response END_TXN from 0: EndTxnResponse);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ListTransactionsRequest<'a> {
        /// Names of states; empty for all.
        pub states: Vec<&'a str>,
        /// Empty for all.
        pub producer_ids: Vec<i64>,
    }
}

body!(request LIST_TRANSACTIONS from 0: ListTransactionsRequest<'a>);

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ListTransactionsResponse<'a> {
        pub throttle_ms: i32,
        pub error_code: ErrorCode,
        pub unknown_states: Vec<&'a str>,
        pub transactions: Vec<ListedTransaction<'a>>,
    }
}

fields! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ListedTransaction<'a> {
        pub transactional_id: &'a str,
        pub producer_id: i64,
        pub state: &'a str,
    }
}

body!(response LIST_TRANSACTIONS from 0: ListTransactionsResponse<'a>);

#[cfg(test)]
mod tests {
    use super::*;

    fn id_request() -> InitProducerIdRequest<'static> {
        InitProducerIdRequest {
            transactional_id: Some("t"),
            timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
        }
    }

    #[test]
    fn bodies_are_kafkas() {
        let mut out = Vec::new();
        id_request().encode(&mut out, 0);
        assert_eq!(out, [0, 1, b't', 0, 0, 0xea, 0x60]);
        out.clear();
        id_request().encode(&mut out, 4);
        let expected = [&[2, b't', 0, 0, 0xea, 0x60][..], &[255; 8], &[255; 2], &[0]];
        assert_eq!(out, expected.concat());
        out.clear();
        let end = EndTxnRequest {
            transactional_id: "t",
            producer_id: 7,
            producer_epoch: 3,
            committed: true,
        };
        end.encode(&mut out, 3);
        assert_eq!(out, [2, b't', 0, 0, 0, 0, 0, 0, 0, 7, 0, 3, 1, 0]);
    }

    #[test]
    fn every_version_reads_back_and_every_cut_is_an_error() {
        for version in 0..=3 {
            let request = AddPartitionsRequest {
                transactional_id: "t",
                producer_id: 7,
                producer_epoch: 3,
                topics: vec![AddPartitionsTopic {
                    name: "topic",
                    partitions: vec![0, 5],
                }],
            };
            let mut out = Vec::new();
            request.encode(&mut out, version);
            assert_eq!(AddPartitionsRequest::decode(&out, version), Ok(request));
            for len in 0..out.len() {
                assert!(AddPartitionsRequest::decode(&out[..len], version).is_err());
            }
        }
        for version in 1..=3 {
            let response = FindCoordinatorResponse {
                throttle_ms: 0,
                error_code: ErrorCode::NONE,
                error_message: None,
                node_id: 1,
                host: "h",
                port: 9092,
            };
            let mut out = Vec::new();
            response.encode(&mut out, version);
            assert_eq!(FindCoordinatorResponse::decode(&out, version), Ok(response));
        }
    }
}

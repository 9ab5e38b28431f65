//! The Python module pyrklog._core: the only crate that knows pyo3. No logic.

mod arenas;
mod bad_records;
mod clock;
mod config;
mod digests;
mod dump;
mod errors;
mod event_class;
mod events;
mod fields;
mod image;
mod internal;
mod interruptible;
mod load;
mod log_config;
mod member_requests;
mod offsets;
mod plane;
mod produce;
mod registry;
mod scan;
mod security;
#[cfg(feature = "sim")]
mod sim;
mod tables;
mod telemetry;
mod transactions;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Types and functions: `python/pyrklog/_core.pyi`.
#[pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::arenas::{drain_arena, drop_arenas, list_arenas, memory_bytes, remove_arena};
    #[pymodule_export]
    use crate::clock::set_clock_ahead_ms;
    #[pymodule_export]
    use crate::digests::ReplicaDigestDone;
    #[pymodule_export]
    use crate::dump::dump_file;
    #[pymodule_export]
    use crate::errors::{
        AuthenticationError, BadRecordsError, BadValueError, BatchTooLargeError,
        BrokerNotAvailableError, BrokerProtocolError, CorruptBatchError, LeaderNotAvailableError,
        LogTruncatedError, NotAuthorizedError, OffsetOutOfRangeError, RegistryNotAvailableError,
        ScanClosedError, ScanError, TopicDeletedError, UnknownTopicError, UnsupportedBrokerError,
    };
    #[pymodule_export]
    use crate::errors::{
        ClusterUnavailableError, LogEndMovedError, ProduceError, ProducerAuthenticationError,
        RecordTooLargeError, TransactionFencedError, UnsupportedClusterError,
    };
    #[pymodule_export]
    use crate::errors::{
        ForeignLogDirError, LogDirError, LogDirLockedError, OtherBrokerLogDirError,
        OtherClusterLogDirError, PlaneClosedError,
    };
    #[pymodule_export]
    use crate::events::{
        ClientGone, FollowerCaughtUp, FollowerLogStart, InternalAppended, LogDirFailed,
        LogDirsDescribed, Notice, PartitionFailed, PartitionsDone, RecordsDeleted, Request,
        Session, ShutdownDone, TopicsMissing,
    };
    #[pymodule_export]
    use crate::internal::InternalReadDone;
    #[pymodule_export]
    use crate::load::run_load;
    #[pymodule_export]
    use crate::member_requests::{Heartbeat, OffsetCommit};
    #[pymodule_export]
    use crate::offsets::{CommitBatch, OffsetTable, commit_error};
    #[pymodule_export]
    use crate::plane::DataPlane;
    #[pymodule_export]
    use crate::produce::{Producer, Transactions, open_producer, open_transactions};
    #[pymodule_export]
    use crate::registry::latest_schema;
    #[pymodule_export]
    use crate::scan::{Scan, decoded_schema, open_scan, topic_names};
    #[pymodule_export]
    use crate::security::check_access;
    #[pymodule_export]
    use crate::tables::{ApiRow, api_table, feature_table, java_hash, time_bounds_ns};
    #[pymodule_export]
    use crate::telemetry::{Pattern, crc32c, decompress};
    #[pymodule_export]
    use crate::transactions::{InternalLoaded, LiveRecords, MarkersWritten, VerifyTransaction};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        #[cfg(feature = "sim")]
        {
            module.add_class::<crate::sim::MemDisk>()?;
            module.add_class::<crate::sim::SimPlane>()?;
            module.add_function(wrap_pyfunction!(crate::sim::plant, module)?)?;
            module.add_function(wrap_pyfunction!(crate::sim::set_now_ms, module)?)?;
        }
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("Event", crate::events::union(module.py())?)
    }
}

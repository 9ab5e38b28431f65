//! Plans with typed values; the first values of a scan's range, for a schema.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use pyrklog_client::{Cancel, ClientConfig};

use crate::columns::{Column, Columns};
use crate::error::{ErrorKind, Result, ScanError};
use crate::options::ScanOptions;
use crate::plan::{self, Plan};
use crate::reader::ScanReader;
use crate::registry::{Answer, Registry};
use crate::split::Split;
use crate::typed::avro::{Reader, framed};
use crate::typed::{Decode, Decoding, Format, infer};

/// Values of a sample, and partitions of which it has at least one.
const SAMPLE_ROWS: usize = 1000;
const SAMPLE_BYTES: usize = 32 << 20;
/// Ids that a registry is asked for.
const SAMPLE_IDS: usize = 100;

/// (topic, partition, offset), value.
type Sampled = ((Arc<str>, i32, i64), Vec<u8>);

/// Asks the cluster what there is to read, and reads a sample if a schema is wanted from one. Blocks
/// up to twice `options.timeout` and as long as the sample takes, or until `cancel` is used.
///
/// # Errors
/// [`ScanError`] of all kinds; those of records only with a sample.
pub fn plan(options: ScanOptions, cancel: Cancel) -> Result<Plan> {
    let mut plan = plan::plan(options, cancel.clone())?;
    if let Some(decode) = plan.options.decode.take() {
        let options = &plan.options;
        let decoding = decoding(&decode, options, &plan.splits, &cancel)?;
        let columns = Columns::decoded(options.columns.list(), decoding);
        plan.options.columns = Arc::new(columns);
    }
    Ok(plan)
}

/// What to decode, if its schema is given: `None` where it takes a sample. Nobody is asked.
///
/// # Errors
/// A schema that cannot be used, a registry that is no URL.
pub fn given(decode: &Decode) -> Result<Option<Decoding>> {
    let bad = |text| ScanError::new(ErrorKind::Argument, text);
    let (names, on_bad) = (decode.fields.as_deref(), decode.on_bad);
    let found = match &decode.format {
        Format::Json { schema: None } | Format::Registered { schema: None, .. } => return Ok(None),
        Format::Json {
            schema: Some(schema),
        } => Decoding::new(schema, names, on_bad),
        Format::Avro { schema, writer } => Decoding::avro(schema, writer.as_deref(), names, on_bad),
        Format::Protobuf {
            descriptors,
            message,
            is_framed,
        } => Decoding::protobuf(descriptors, message, *is_framed, names, on_bad),
        Format::Registered {
            schema: Some(schema),
            registry,
        } => {
            let cancel = Cancel::new().map_err(crate::threads::resources)?;
            let config = ClientConfig {
                bootstrap: Vec::new(),
                client_id: String::new(),
                connect_timeout: Duration::ZERO,
                request_timeout: Duration::ZERO,
                security: Default::default(),
            };
            let registry = Registry::new(registry, &config, &cancel).map_err(bad)?;
            let reader = Reader::new(schema, names).map_err(bad)?;
            Decoding::registered(reader, registry, on_bad)
        }
    };
    found.map(Some).map_err(bad)
}

/// Finds out what to decode of `splits`, if need be by reading.
///
/// # Errors
/// A schema that cannot be used; those of a scan.
fn decoding(
    decode: &Decode,
    options: &ScanOptions,
    splits: &[Split],
    cancel: &Cancel,
) -> Result<Decoding> {
    let bad = |text| ScanError::new(ErrorKind::Argument, text);
    if !options.columns.has(Column::Value) {
        return Err(bad("decode needs the column 'value'".into()));
    }
    let (names, on_bad) = (decode.fields.as_deref(), decode.on_bad);
    match &decode.format {
        Format::Json { schema: None } => {
            let sample = read(options, splits, cancel)?;
            let schema = infer(sample.iter().map(|one| &one.1[..])).map_err(bad)?;
            Decoding::new(&schema, names, on_bad).map_err(bad)
        }
        Format::Json { .. } | Format::Avro { .. } | Format::Protobuf { .. } => {
            given(decode)?.ok_or_else(|| bad("a schema is needed".into()))
        }
        Format::Registered { schema, registry } => {
            let registry = Registry::new(registry, &options.client, cancel).map_err(bad)?;
            let schema = match schema {
                Some(schema) => schema.clone(),
                None => newest(&read(options, splits, cancel)?, &registry)?,
            };
            let reader = Reader::new(&schema, names).map_err(bad)?;
            Decoding::registered(reader, registry, on_bad).map_err(bad)
        }
    }
}

/// The schema with the highest id that a sample names and the registry has: the one registered last.
///
/// # Errors
/// There is none; the registry gives no answer.
fn newest(sample: &[Sampled], registry: &Registry) -> Result<String> {
    let ids = sample.iter().filter_map(|one| Some(framed(&one.1).ok()?.0));
    let ids: BTreeSet<u32> = ids.collect();
    // What is no frame may begin with a 0, too.
    for id in ids.iter().rev().take(SAMPLE_IDS) {
        if let Answer::Schema(text) = registry.schema(*id)? {
            return Ok(text);
        }
    }
    let text = format!(
        "none of the {} values in the sample names an Avro schema that the registry has: give one",
        sample.len()
    );
    Err(ScanError::new(ErrorKind::Argument, text))
}

/// The first values, in the order of partitions and offsets.
fn read(options: &ScanOptions, splits: &[Split], cancel: &Cancel) -> Result<Vec<Sampled>> {
    let columns = [
        Column::Value,
        Column::Topic,
        Column::Partition,
        Column::Offset,
    ];
    let mut options = options.clone();
    options.columns = Arc::new(Columns::new(&columns));
    options.decode = None;
    options.threads = 1;
    // Its end ends its threads, not the scan's.
    let own = Cancel::new().map_err(crate::threads::resources)?;
    let Plan {
        options, client, ..
    } = plan::plan(options, own)?;
    let splits = beginnings(splits);
    let outer = cancel.clone();
    let plan = Plan {
        splits,
        left_out: Vec::new(),
        options,
        client,
    };
    let interrupt = Box::new(move || outer.is_cancelled());
    let mut reader = ScanReader::start(plan, None, Some(interrupt))?;
    let (mut sample, mut bytes) = (Vec::new(), 0);
    while bytes < SAMPLE_BYTES
        && let Some(batch) = reader.next_batch()?
    {
        bytes += append(&mut sample, &batch);
    }
    sample.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    Ok(sample)
}

/// So much of each split that all together are a sample.
fn beginnings(splits: &[Split]) -> Vec<Split> {
    let has_any = |split: &&Split| split.start < split.end;
    let some: Vec<&Split> = splits.iter().filter(has_any).take(SAMPLE_ROWS).collect();
    let each = SAMPLE_ROWS.div_ceil(some.len().max(1)) as i64;
    let begin = |split: &Split| Split {
        end: split.end.min(split.start.saturating_add(each)),
        ..split.clone()
    };
    some.into_iter().map(begin).collect()
}

fn append(sample: &mut Vec<Sampled>, batch: &RecordBatch) -> usize {
    let values = batch.column(0).as_binary::<i32>();
    let topics = batch.column(1).as_string::<i32>();
    let partitions = batch.column(2).as_primitive::<Int32Type>();
    let offsets = batch.column(3).as_primitive::<Int64Type>();
    let mut bytes = 0;
    for row in (0..batch.num_rows()).filter(|row| values.is_valid(*row)) {
        let place = (
            Arc::from(topics.value(row)),
            partitions.value(row),
            offsets.value(row),
        );
        bytes += values.value(row).len();
        sample.push((place, values.value(row).to_vec()));
    }
    bytes
}

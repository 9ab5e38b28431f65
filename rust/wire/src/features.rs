//! Features of ApiVersions (KIP-584): tagged fields from version 3 on.
//!
//! ```text
//! tag 0  supported   [name, min i16, max i16]
//! tag 1  epoch of the finalized ones, i64
//! tag 2  finalized   [name, max level i16, min level i16]
//! ```
//!
//! Clients take up a feature that is finalized. Before version 4 Java's clients cannot read a
//! supported feature that begins at 0, so it is left out there, as in Kafka (KAFKA-17011).

use crate::error::Result;
use crate::message::Field;
use crate::reader::Reader;
use crate::writer::Writer;

/// First version with features.
const SINCE: i16 = 3;

/// First version whose supported features may begin at 0.
const ZERO_SINCE: i16 = 4;

/// Bytes of a feature at least: its name's length, two numbers, tags.
const FEATURE_BYTES_MIN: usize = 6;

/// "There are none".
const NO_EPOCH: i64 = -1;

/// A feature that this broker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureRow {
    /// Its name.
    pub name: &'static str,
    /// Lowest supported version.
    pub min_version: i16,
    /// Highest supported version.
    pub max_version: i16,
    /// The version in use.
    pub finalized: i16,
}

/// All of them. They are the same in each life of a cluster.
pub const FEATURES: &[FeatureRow] = &[FeatureRow {
    name: "transaction.version",
    min_version: 0,
    max_version: 2,
    finalized: 2,
}];

const FINALIZED_EPOCH: i64 = 1;

/// A feature's range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// Lowest version.
    pub min_version: i16,
    /// Highest version.
    pub max_version: i16,
}

/// The tagged fields of an ApiVersions response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// What the broker supports.
    pub supported: Vec<Feature>,
    /// Counts changes of the finalized features, -1 without.
    pub finalized_epoch: i64,
    /// What the cluster uses.
    pub finalized: Vec<Feature>,
}

impl Default for Features {
    fn default() -> Features {
        Features {
            supported: Vec::new(),
            finalized_epoch: NO_EPOCH,
            finalized: Vec::new(),
        }
    }
}

impl Features {
    /// Those of [`FEATURES`].
    pub fn of_table() -> Features {
        let feature = |row: &FeatureRow, min_version, max_version| Feature {
            name: row.name.to_owned(),
            min_version,
            max_version,
        };
        let supported = |row| feature(row, row.min_version, row.max_version);
        let finalized = |row| feature(row, row.finalized, row.finalized);
        Features {
            supported: FEATURES.iter().map(supported).collect(),
            finalized_epoch: FINALIZED_EPOCH,
            finalized: FEATURES.iter().map(finalized).collect(),
        }
    }

    /// What a response of this version holds.
    pub fn visible_in(mut self, version: i16) -> Features {
        if version < SINCE {
            return Features::default();
        }
        self.supported
            .retain(|feature| version >= ZERO_SINCE || feature.min_version > 0);
        self
    }
}

impl<'a> Field<'a> for Features {
    type Value = Features;

    fn read(reader: &mut Reader<'a>, _version: i16) -> Result<Features> {
        let mut features = Features::default();
        reader.tags(|tag, field| {
            match tag {
                0 => {
                    features.supported = read_features(field)?;
                }
                1 => features.finalized_epoch = field.i64()?,
                2 => {
                    features.finalized = read_features(field)?;
                    for feature in &mut features.finalized {
                        // Here the highest one comes first.
                        std::mem::swap(&mut feature.min_version, &mut feature.max_version);
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(features)
    }

    fn write(features: &Features, writer: &mut Writer<'_>, version: i16) {
        let features = features.clone().visible_in(version);
        let parts = [
            !features.supported.is_empty(),
            features.finalized_epoch != NO_EPOCH,
            !features.finalized.is_empty(),
        ];
        let count = parts.iter().filter(|is_there| **is_there).count();
        if count == 0 {
            return writer.no_tags();
        }
        writer.tag_count(count as u32);
        if parts[0] {
            writer.tagged_field(0, |field| {
                write_features(field, &features.supported, |feature| {
                    (feature.min_version, feature.max_version)
                });
            });
        }
        if parts[1] {
            writer.tagged_field(1, |field| field.i64(features.finalized_epoch));
        }
        if parts[2] {
            writer.tagged_field(2, |field| {
                write_features(field, &features.finalized, |feature| {
                    (feature.max_version, feature.min_version)
                });
            });
        }
    }

    fn min_bytes(_version: i16, flexible: bool) -> usize {
        usize::from(flexible)
    }
}

fn read_features(reader: &mut Reader<'_>) -> Result<Vec<Feature>> {
    reader.array(FEATURE_BYTES_MIN, |reader| {
        let feature = Feature {
            name: reader.string()?.to_owned(),
            min_version: reader.i16()?,
            max_version: reader.i16()?,
        };
        reader.skip_tags()?;
        Ok(feature)
    })
}

fn write_features(
    writer: &mut Writer<'_>,
    features: &[Feature],
    range: impl Fn(&Feature) -> (i16, i16),
) {
    writer.array(features, |writer, feature| {
        let (first, second) = range(feature);
        writer.string(&feature.name);
        writer.i16(first);
        writer.i16(second);
        writer.no_tags();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(version: i16) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, version >= SINCE);
        Features::write(&Features::of_table(), &mut writer, version);
        out
    }

    #[test]
    fn transaction_version_is_finalized() {
        let mut expected = vec![3, 0, 26, 2, 20];
        expected.extend(b"transaction.version");
        expected.extend([0, 0, 0, 2, 0]);
        expected.extend([1, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        expected.extend([2, 26, 2, 20]);
        expected.extend(b"transaction.version");
        expected.extend([0, 2, 0, 2, 0]);
        assert_eq!(encoded(4), expected);
    }

    #[test]
    fn features_that_begin_at_0_are_left_out_of_version_3() {
        let bytes = encoded(3);
        let found = Features::read(&mut Reader::new(&bytes, true), 3).unwrap();
        assert_eq!(found, Features::of_table().visible_in(3));
        assert!(found.supported.is_empty());
        assert_eq!(found.finalized[0].max_version, 2);
        assert!(encoded(2).is_empty());
    }
}

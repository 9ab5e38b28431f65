//! Variable-length integers (base 128, least significant group first; signed ones zig-zag):
//! unsigned in flexible versions (KIP-482), signed in records.

use crate::error::{DecodeError, Result};

/// The most bytes an encoded 32-bit integer takes.
pub const VARINT_MAX_BYTES: usize = 5;
/// The most bytes an encoded 64-bit integer takes.
pub const VARLONG_MAX_BYTES: usize = 10;

/// Decodes an unsigned 32-bit integer; returns it and its length in bytes.
#[inline(always)]
pub fn read_uvarint(bytes: &[u8]) -> Result<(u32, usize)> {
    match bytes {
        [a, ..] if *a < 0x80 => Ok((u32::from(*a), 1)),
        [a, b, ..] if *b < 0x80 => Ok((u32::from(*a & 0x7f) | u32::from(*b) << 7, 2)),
        _ => read_uvarint_slow(bytes),
    }
}

#[cold]
fn read_uvarint_slow(bytes: &[u8]) -> Result<(u32, usize)> {
    let mut value = 0u32;
    for index in 0..VARINT_MAX_BYTES {
        let Some(&byte) = bytes.get(index) else {
            return Err(DecodeError::Truncated {
                needed: index + 1,
                remaining: bytes.len(),
            });
        };
        if index + 1 == VARINT_MAX_BYTES && byte > 0x0f {
            break;
        }
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, index + 1));
        }
    }
    Err(DecodeError::BadVarint)
}

/// Decodes an unsigned 64-bit integer; returns it and its length in bytes.
#[inline(always)]
pub fn read_uvarlong(bytes: &[u8]) -> Result<(u64, usize)> {
    match bytes {
        [a, ..] if *a < 0x80 => Ok((u64::from(*a), 1)),
        [a, b, ..] if *b < 0x80 => Ok((u64::from(*a & 0x7f) | u64::from(*b) << 7, 2)),
        _ => read_uvarlong_slow(bytes),
    }
}

#[cold]
fn read_uvarlong_slow(bytes: &[u8]) -> Result<(u64, usize)> {
    let mut value = 0u64;
    for index in 0..VARLONG_MAX_BYTES {
        let Some(&byte) = bytes.get(index) else {
            return Err(DecodeError::Truncated {
                needed: index + 1,
                remaining: bytes.len(),
            });
        };
        if index + 1 == VARLONG_MAX_BYTES && byte > 0x01 {
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, index + 1));
        }
    }
    Err(DecodeError::BadVarint)
}

/// Decodes a zig-zag 32-bit integer; returns it and its length in bytes.
#[inline(always)]
pub fn read_varint(bytes: &[u8]) -> Result<(i32, usize)> {
    let (raw, len) = read_uvarint(bytes)?;
    Ok((unzigzag(raw), len))
}

/// Decodes a zig-zag 64-bit integer; returns it and its length in bytes.
#[inline(always)]
pub fn read_varlong(bytes: &[u8]) -> Result<(i64, usize)> {
    let (raw, len) = read_uvarlong(bytes)?;
    Ok(((raw >> 1) as i64 ^ -((raw & 1) as i64), len))
}

/// Undoes zig-zag on 32 bits.
#[inline(always)]
pub fn unzigzag(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

/// Appends an unsigned 32-bit integer.
pub fn write_uvarint(out: &mut Vec<u8>, value: u32) {
    write_uvarlong(out, u64::from(value));
}

/// Appends an unsigned 64-bit integer.
pub fn write_uvarlong(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a zig-zag 32-bit integer.
pub fn write_varint(out: &mut Vec<u8>, value: i32) {
    write_uvarint(out, ((value << 1) ^ (value >> 31)) as u32);
}

/// Appends a zig-zag 64-bit integer.
pub fn write_varlong(out: &mut Vec<u8>, value: i64) {
    write_uvarlong(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Bytes that [`write_uvarint`] takes for `value`.
pub fn uvarint_len(value: u32) -> usize {
    (38 - (value | 1).leading_zeros() as usize) / 7
}

/// Bytes that [`write_varint`] takes for `value`.
pub fn varint_len(value: i32) -> usize {
    uvarint_len(((value << 1) ^ (value >> 31)) as u32)
}

/// Bytes that [`write_varlong`] takes for `value`.
pub fn varlong_len(value: i64) -> usize {
    let raw = ((value << 1) ^ (value >> 63)) as u64;
    (70 - (raw | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_round_trip_with_the_announced_length() {
        let edges = [
            0i64,
            1,
            -1,
            63,
            64,
            -64,
            -65,
            8191,
            8192,
            i32::MAX.into(),
            i32::MIN.into(),
        ];
        for value in edges
            .into_iter()
            .chain([i64::MAX, i64::MIN, 1 << 48, -(1 << 55)])
        {
            let mut out = Vec::new();
            write_varlong(&mut out, value);
            assert_eq!(out.len(), varlong_len(value), "{value}");
            assert_eq!(read_varlong(&out), Ok((value, out.len())));
            if let Ok(small) = i32::try_from(value) {
                let mut out = Vec::new();
                write_varint(&mut out, small);
                assert_eq!(out.len(), varint_len(small), "{value}");
                assert_eq!(read_varint(&out), Ok((small, out.len())));
            }
        }
        for shift in 0..32 {
            for value in [1u32 << shift, (1u32 << shift) - 1, u32::MAX >> shift] {
                let mut out = Vec::new();
                write_uvarint(&mut out, value);
                assert_eq!(out.len(), uvarint_len(value), "{value}");
                assert_eq!(read_uvarint(&out), Ok((value, out.len())));
            }
        }
    }

    #[test]
    fn too_long_and_cut_integers_are_errors() {
        assert_eq!(read_uvarint(&[0xff; 5]), Err(DecodeError::BadVarint));
        assert_eq!(
            read_uvarint(&[0xff, 0xff, 0xff, 0xff, 0x10]),
            Err(DecodeError::BadVarint)
        );
        assert_eq!(
            read_uvarint(&[0xff, 0xff, 0xff, 0xff, 0x0f]),
            Ok((u32::MAX, 5))
        );
        assert_eq!(read_uvarlong(&[0xff; 10]), Err(DecodeError::BadVarint));
        assert_eq!(
            read_uvarint(&[0x80, 0x80]),
            Err(DecodeError::Truncated {
                needed: 3,
                remaining: 2
            })
        );
        assert_eq!(
            read_uvarint(&[]),
            Err(DecodeError::Truncated {
                needed: 1,
                remaining: 0
            })
        );
        assert_eq!(
            read_uvarlong(&[0x80]),
            Err(DecodeError::Truncated {
                needed: 2,
                remaining: 1
            })
        );
    }
}

//! The hash by which Kafka's coordinators place a name.

/// Java's `String.hashCode` of a text in UTF-16, big endian. A last odd byte is ignored.
pub fn java_hash(utf16: &[u8]) -> i32 {
    utf16.chunks_exact(2).fold(0i32, |hash, unit| {
        let unit = i32::from(u16::from_be_bytes([unit[0], unit[1]]));
        hash.wrapping_mul(31).wrapping_add(unit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> i32 {
        let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        java_hash(&bytes)
    }

    #[test]
    fn hashes_are_javas() {
        assert_eq!(of(""), 0);
        assert_eq!(of("my-group"), -1_906_497_762);
        assert_eq!(of("polygenelubricants"), i32::MIN);
        assert_eq!(of("\u{1F4A9}"), 1_772_556);
    }
}

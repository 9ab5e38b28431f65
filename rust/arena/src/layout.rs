//! Where everything lies in the file; see `block-cache.md`, section 1.

/// First bytes of every arena.
pub const MAGIC: [u8; 8] = *b"PYRKARNA";
/// Version of the format.
pub const VERSION: u32 = 3;
/// The earliest format understood: it knows no holes, and its content is valid in this one.
pub const VERSION_EARLIEST: u32 = 2;

pub const HEADER_BYTES: usize = 4096;
pub const HEADER_VERSION: usize = 8;
/// CRC-32C of the fixed fields.
pub const HEADER_CRC: usize = 12;
/// The bytes under the header's CRC.
pub const HEADER_FIXED: std::ops::Range<usize> = 16..352;
pub const HEADER_UUID: usize = 16;
pub const HEADER_BOOT: usize = 32;
/// Chunks that fit.
pub const HEADER_CHUNKS: usize = 48;
/// Hash of the log directory's whole path.
pub const HEADER_PATH_HASH: usize = 56;
pub const HEADER_PATH_LEN: usize = 64;
pub const HEADER_PATH: std::ops::Range<usize> = 68..352;
/// Chunks ever populated, with its complement.
pub const HEADER_POPULATED: usize = 352;
/// Slots populated, with its complement.
pub const HEADER_SLOTS: usize = 360;
/// How it was left, with its complement: 1 = by an orderly end.
pub const HEADER_LEFT: usize = 368;
/// Hash of the directory's marker at an orderly end, 0 = none.
pub const HEADER_MARKER: usize = 376;

/// Partitions that one arena can hold; further ones are written through.
pub const SLOTS: usize = 65_536;
pub const SLOT_BYTES: usize = 512;
/// Slots that are populated together.
pub const SLOTS_A_GROUP: usize = 1024;
pub const SLOT_GENERATION: usize = 4;
pub const SLOT_INDEX: usize = 8;
pub const SLOT_NAME_LEN: usize = 12;
pub const SLOT_TOPIC_ID: usize = 16;
pub const SLOT_NAME: usize = 32;
pub const NAME_BYTES_MAX: usize = 249;
pub const SLOT_CRC: usize = 284;
/// Whether the partition's log has producers, with its complement.
pub const SLOT_PRODUCERS: usize = 288;
/// Hash of the partition's files at an orderly end, 0 = none.
pub const SLOT_FILES: usize = 296;

/// Where the chunks begin.
pub const CHUNKS_START: usize = {
    let end = HEADER_BYTES + SLOTS * SLOT_BYTES;
    end.div_ceil(CHUNK_BYTES) * CHUNK_BYTES
};
pub const CHUNK_BYTES: usize = 1 << 20;
pub const CHUNK_HEADER_BYTES: usize = 64;
pub const CHUNK_CLASS: usize = 4;
pub const CHUNK_SEQUENCE: usize = 8;

pub const BLOCK_BYTES: usize = 64;
pub const BLOCK_SLOT: usize = 4;
pub const BLOCK_GENERATION: usize = 8;
/// Position in the segment.
pub const BLOCK_POSITION: usize = 12;
/// Base offset of the segment.
pub const BLOCK_SEGMENT: usize = 16;
pub const BLOCK_CRC: usize = 24;
/// The bytes under the descriptor's CRC.
pub const BLOCK_FIXED: std::ops::Range<usize> = 4..24;
/// Committed bytes, with their complement.
pub const BLOCK_COMMITTED: usize = 32;
/// Written bytes, with their complement.
pub const BLOCK_WRITTEN: usize = 40;

/// A page of the file system and of memory. Writes around the page cache must begin and end at a
/// page's bounds, in the file and in memory.
pub const PAGE_BYTES: usize = 4096;

/// Blocks of a chunk, by class.
pub const CLASS_BLOCKS: [usize; 4] = [252, 31, 4, 1];
pub const CLASSES: usize = CLASS_BLOCKS.len();

/// Whether pages of the file are pages of memory in blocks of a class.
pub const fn has_pages(class: usize) -> bool {
    class > 0
}

/// Bytes of one block's area, by class.
pub const fn area_bytes(class: usize) -> usize {
    let blocks = CLASS_BLOCKS[class];
    if has_pages(class) {
        (CHUNK_BYTES / PAGE_BYTES - 1) / blocks * PAGE_BYTES
    } else {
        (CHUNK_BYTES - CHUNK_HEADER_BYTES - blocks * BLOCK_BYTES) / blocks / 64 * 64
    }
}

/// Where in its area a block's payload begins, if its first byte stands at `position` of the
/// segment.
pub const fn lead_bytes(class: usize, position: u32) -> usize {
    if has_pages(class) {
        position as usize % PAGE_BYTES
    } else {
        0
    }
}

/// Payload bytes of one block of a class that begins at `position`.
pub const fn payload_bytes(class: usize, position: u32) -> usize {
    area_bytes(class) - lead_bytes(class, position)
}

pub const fn slot_at(slot: u32) -> usize {
    HEADER_BYTES + slot as usize * SLOT_BYTES
}

pub const fn chunk_at(chunk: u32) -> usize {
    CHUNKS_START + chunk as usize * CHUNK_BYTES
}

pub const fn block_at(chunk: u32, block: u16) -> usize {
    chunk_at(chunk) + CHUNK_HEADER_BYTES + block as usize * BLOCK_BYTES
}

pub const fn area_at(chunk: u32, class: u8, block: u16) -> usize {
    let class = class as usize;
    let behind = if has_pages(class) {
        PAGE_BYTES
    } else {
        CHUNK_HEADER_BYTES + CLASS_BLOCKS[class] * BLOCK_BYTES
    };
    chunk_at(chunk) + behind + block as usize * area_bytes(class)
}

pub const fn file_bytes(chunks: u32) -> usize {
    chunk_at(chunks)
}

/// A count with its complement, in one word.
pub const fn guarded(count: u32) -> u64 {
    (!count as u64) << 32 | count as u64
}

/// The count, unless a bit has flipped.
pub const fn unguarded(word: u64) -> Option<u32> {
    let count = word as u32;
    if (word >> 32) as u32 == !count {
        Some(count)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_class_fit_into_their_chunk() {
        for (class, &blocks) in CLASS_BLOCKS.iter().enumerate() {
            let last = area_at(0, class as u8, blocks as u16 - 1) + area_bytes(class);
            assert!(last <= chunk_at(1), "class {class}");
            assert!(area_at(0, class as u8, 0) >= block_at(0, blocks as u16));
            assert_eq!(area_at(0, class as u8, 0) % 64, 0);
        }
        let sizes: Vec<usize> = (0..CLASSES).map(area_bytes).collect();
        assert_eq!(sizes, [4096, 8 * 4096, 63 * 4096, 255 * 4096]);
    }

    #[test]
    fn a_page_of_the_file_is_a_page_of_memory() {
        for class in 1..CLASSES {
            for position in [0, 1, 4095, 4096, 4097, 1 << 30 | 77] {
                let start = area_at(3, class as u8, 0) + lead_bytes(class, position);
                assert_eq!(start % PAGE_BYTES, position as usize % PAGE_BYTES);
                let end = position as usize + payload_bytes(class, position);
                assert_eq!(end % PAGE_BYTES, 0, "the next block begins with a page");
            }
        }
    }

    #[test]
    fn the_regions_do_not_overlap() {
        assert!(slot_at(SLOTS as u32 - 1) + SLOT_BYTES <= CHUNKS_START);
        assert_eq!(CHUNKS_START % CHUNK_BYTES, 0);
        const { assert!(SLOT_NAME + NAME_BYTES_MAX <= SLOT_CRC) };
        assert_eq!(SLOTS % SLOTS_A_GROUP, 0);
    }

    #[test]
    fn a_flipped_bit_of_a_count_is_seen() {
        for count in [0, 1, 4032, u32::MAX] {
            assert_eq!(unguarded(guarded(count)), Some(count));
            for bit in 0..64 {
                assert_eq!(unguarded(guarded(count) ^ 1 << bit), None);
            }
        }
        assert_eq!(unguarded(0), None, "memory that was never stored to");
    }
}

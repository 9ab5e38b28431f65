use super::*;
use proptest::prelude::*;

mod levels;

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];
const LIMIT: usize = 10 << 20;

fn compressed(codec: Compression, records: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(codec, records, &mut out).expect("in memory");
    out
}

fn expanded(codec: Compression, body: &[u8]) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    decompress(codec, body, &mut out, LIMIT)?;
    Ok(out)
}

fn text(len: usize) -> Vec<u8> {
    b"a line that repeats with a number: "
        .iter()
        .copied()
        .cycle()
        .take(len)
        .collect()
}

#[test]
fn every_codec_round_trips() {
    for codec in CODECS {
        for len in [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 300_000] {
            let records = text(len);
            assert_eq!(
                expanded(codec, &compressed(codec, &records)),
                Ok(records),
                "{codec:?} {len}"
            );
        }
    }
}

#[test]
fn a_bomb_is_refused_at_the_bound() {
    let zeros = vec![0; 64 << 20];
    for codec in CODECS {
        let bomb = compressed(codec, &zeros);
        let mut out = Vec::new();
        let limit_bytes = 1 << 20;
        let refused = decompress(codec, &bomb, &mut out, limit_bytes);
        assert_eq!(
            refused,
            Err(DecompressError::TooLarge { limit_bytes }),
            "{codec:?}"
        );
        assert!(
            out.capacity() <= 4 << 20,
            "{codec:?} took {} bytes",
            out.capacity()
        );
    }
}

#[test]
fn the_bound_itself_is_allowed() {
    let records = text(70_000);
    for codec in CODECS {
        let body = compressed(codec, &records);
        let mut out = Vec::new();
        assert_eq!(
            decompress(codec, &body, &mut out, 70_000),
            Ok(()),
            "{codec:?}"
        );
        let refused = decompress(codec, &body, &mut out, 69_999);
        assert_eq!(
            refused,
            Err(DecompressError::TooLarge {
                limit_bytes: 69_999
            }),
            "{codec:?}"
        );
    }
}

#[test]
fn bodies_that_are_cut_off_are_refused() {
    let records = text(1000);
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let body = compressed(codec, &records);
        for len in 1..body.len() {
            // Snappy's framing has no end mark: its header alone is an empty stream.
            let whole = codec == Compression::Snappy && len == 16;
            assert_eq!(
                expanded(codec, &body[..len]).is_ok(),
                whole,
                "{codec:?} {len}"
            );
        }
    }
}

#[test]
fn snappy_is_read_raw_and_framed() {
    let records = text(100_000);
    let raw = snap::raw::Encoder::new()
        .compress_vec(&records)
        .expect("in memory");
    assert_eq!(expanded(Compression::Snappy, &raw), Ok(records.clone()));
    let framed = compressed(Compression::Snappy, &records);
    assert_eq!(framed[..16], *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
    // Two joined streams, each with its header.
    let joined = [framed.clone(), framed].concat();
    assert_eq!(
        expanded(Compression::Snappy, &joined),
        Ok([records.clone(), records].concat())
    );
}

#[test]
fn snappy_blocks_do_not_lie_about_their_size() {
    // A raw block that announces 5 MiB and ends.
    let lie = [0x80, 0x80, 0xc0, 0x02];
    assert!(matches!(
        expanded(Compression::Snappy, &lie),
        Err(DecompressError::Corrupt { .. })
    ));
    let mut framed = compressed(Compression::Snappy, b"");
    framed.extend_from_slice(&(-1_i32).to_be_bytes());
    assert!(matches!(
        expanded(Compression::Snappy, &framed),
        Err(DecompressError::Corrupt { .. })
    ));
}

/// Frames of 64 KiB blocks as by the reference tool; the descriptor's checksum of `60 40` is 82.
#[test]
fn lz4_frames_have_the_bytes_that_clients_expect() {
    let frame = compressed(Compression::Lz4, b"abc");
    let expected = [
        0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 3, 0, 0, 0x80, b'a', b'b', b'c', 0, 0, 0, 0,
    ];
    assert_eq!(frame, expected);
}

#[test]
fn lz4_frames_of_other_writers_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let records = text(300_000);
    for size in [
        BlockSize::Max64KB,
        BlockSize::Max256KB,
        BlockSize::Max1MB,
        BlockSize::Max4MB,
    ] {
        let info = FrameInfo::new()
            .block_size(size)
            .block_mode(BlockMode::Independent)
            .block_checksums(true)
            .content_checksum(true)
            .content_size(Some(records.len() as u64));
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&records).expect("in memory");
        let frame = encoder.finish().expect("in memory");
        assert_eq!(expanded(Compression::Lz4, &frame), Ok(records.clone()));
        let mut flipped = frame;
        flipped[40] ^= 1;
        assert!(expanded(Compression::Lz4, &flipped).is_err());
    }
}

#[test]
fn lz4_frames_that_java_cannot_read_are_refused() {
    let good = compressed(Compression::Lz4, &text(100));
    for (at, byte, reason) in [
        (0, 0x05, "not an LZ4 frame"),
        (4, 0x40, "depend on one another"),
        (4, 0xa0, "flags"),
        (4, 0x61, "flags"),
        (5, 0x30, "block size"),
        (6, 0x00, "checksum"),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        let error = expanded(Compression::Lz4, &bad).expect_err(reason);
        assert!(error.to_string().contains(reason), "{error}");
    }
}

/// The checksum of `04 22 4d 18 60 40`, as clients of message format 0 compute it.
#[test]
fn lz4_frames_of_format_0_have_a_header_checksum_of_their_own() {
    let mut frame = CompressedStream::new(Compression::Lz4, Lz4Header::Format0, Vec::new())
        .expect("a codec of message sets");
    frame.write(b"abc").expect("in memory");
    let frame = frame.finish().expect("in memory");
    let standard = compressed(Compression::Lz4, b"abc");
    assert_eq!(frame[..6], standard[..6]);
    assert_ne!(frame[6], standard[6]);
    assert_eq!(frame[7..], standard[7..]);
    assert!(expanded(Compression::Lz4, &frame).is_err());
    let mut out = Vec::new();
    for frame in [frame, standard] {
        let read = decompress_with(
            Compression::Lz4,
            Lz4Header::Format0,
            &frame,
            &mut out,
            LIMIT,
        );
        assert_eq!((read, &out[..]), (Ok(()), &b"abc"[..]));
    }
}

#[test]
fn a_stream_gives_what_was_written_in_pieces() {
    let records = text(200_000);
    for codec in [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
    ] {
        for piece_bytes in [1, 1000, 32 * 1024, 64 * 1024, 199_999] {
            let before = b"before".to_vec();
            let mut stream = CompressedStream::new(codec, Lz4Header::Standard, before)
                .expect("a codec of message sets");
            for piece in records.chunks(piece_bytes) {
                stream.write(piece).expect("in memory");
            }
            let out = stream.finish().expect("in memory");
            assert_eq!(out[..6], *b"before");
            assert_eq!(expanded(codec, &out[6..]), Ok(records.clone()), "{codec:?}");
        }
    }
    let zstd = CompressedStream::new(Compression::Zstd, Lz4Header::Standard, Vec::new());
    assert!(zstd.is_err());
}

#[test]
fn gzip_members_and_zstd_frames_may_be_joined() {
    for codec in [Compression::Gzip, Compression::Zstd] {
        let joined = [compressed(codec, b"ab"), compressed(codec, b"cd")].concat();
        assert_eq!(expanded(codec, &joined), Ok(b"abcd".to_vec()), "{codec:?}");
    }
}

#[test]
fn the_threads_buffer_can_be_used_within_itself() {
    let body = compressed(Compression::Zstd, b"outer");
    let inner = compressed(Compression::Gzip, b"inner");
    let both = with_decompressed(Compression::Zstd, &body, LIMIT, |outer| {
        let inner =
            with_decompressed(Compression::Gzip, &inner, LIMIT, <[u8]>::to_vec).expect("valid");
        (outer.to_vec(), inner)
    });
    assert_eq!(both, Ok((b"outer".to_vec(), b"inner".to_vec())));
    // A failure leaves decoder and buffer usable.
    assert!(with_decompressed(Compression::Zstd, &body[..9], LIMIT, <[u8]>::len).is_err());
    assert_eq!(
        with_decompressed(Compression::Zstd, &body, LIMIT, <[u8]>::len),
        Ok(5)
    );
}

proptest! {
    #[test]
    fn arbitrary_records_round_trip(records in proptest::collection::vec(any::<u8>(), 0..5000)) {
        for codec in CODECS {
            prop_assert_eq!(expanded(codec, &compressed(codec, &records)), Ok(records.clone()));
        }
    }

    #[test]
    fn damaged_bodies_never_panic_and_keep_the_bound(
        len in 0_usize..2000,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        for codec in CODECS {
            let mut body = compressed(codec, &text(len));
            for (at, byte) in &damage {
                if !body.is_empty() {
                    let at = at.index(body.len());
                    body[at] = *byte;
                }
            }
            let mut out = Vec::new();
            if decompress(codec, &body, &mut out, 4096).is_ok() {
                prop_assert!(out.len() <= 4096);
            }
        }
    }

    #[test]
    fn arbitrary_bodies_never_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        for codec in CODECS {
            let _ = expanded(codec, &body);
        }
    }
}

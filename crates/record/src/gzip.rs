//! Compressed bytes of a run, to and from plain ones.
//!
//! Contract: what was packed is unpacked as it was; a file that is cut or damaged is unpacked up to the
//! fault, and the fault is told. Several members one after another are one text, as gzip has it.

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use std::io::{Error, Read, Write};

/// How compressed bytes begin. Source: RFC 1952, 2.3.1.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Whether `bytes` are compressed.
pub fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// `bytes`, compressed as far as it goes.
pub fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let written = packed.write_all(bytes).and_then(|()| packed.finish());
    written.expect("writing to memory does not fail")
}

/// What `packed` holds, and the fault at which it breaks off, if it does.
///
/// # Errors
/// When nothing at all comes out.
pub fn unpack(packed: &[u8]) -> Result<(Vec<u8>, Option<Error>), Error> {
    let mut bytes = Vec::new();
    match MultiGzDecoder::new(packed).read_to_end(&mut bytes) {
        Ok(_) => Ok((bytes, None)),
        Err(error) if bytes.is_empty() => Err(error),
        Err(error) => Ok((bytes, Some(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked_and_a_cut_is_told() {
        let text = b"line\n".repeat(1000);
        let packed = pack(&text);
        assert!(is_packed(&packed) && packed.len() < text.len() / 10);
        let (bytes, fault) = unpack(&packed).unwrap();
        assert_eq!((bytes.as_slice(), fault.is_none()), (text.as_slice(), true));
        let two = [packed.clone(), packed.clone()].concat();
        assert_eq!(unpack(&two).unwrap().0, text.repeat(2));
        let (bytes, fault) = unpack(&packed[..packed.len() - 9]).unwrap();
        assert!(text.starts_with(&bytes) && fault.is_some());
        assert!(unpack(&packed[..4]).is_err());
    }
}

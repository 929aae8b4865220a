//! What macOS reads first of a program: the load commands of a Mach-O file.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};

/// What is looked at.
#[derive(Debug, Default)]
pub struct Program {
    /// An executable for 64-bit ARM.
    pub is_arm64_executable: bool,
    /// Install names of the libraries that it loads.
    pub libraries: BTreeSet<String>,
    /// The least version of macOS that it is for: major, minor.
    pub least_macos: Option<(u32, u32)>,
    /// It has a code signature, if only one that the linker made.
    pub is_signed: bool,
}

const MAGIC: u32 = 0xfeed_facf;
const CPU_ARM64: u32 = 0x0100_000c;
const EXECUTABLE: u32 = 2;
const HEADER: usize = 32;

const LOAD_LIBRARY: u32 = 0xc;
const LOAD_WEAK_LIBRARY: u32 = 0x8000_0018;
const CODE_SIGNATURE: u32 = 0x1d;
const BUILD_VERSION: u32 = 0x32;
const MACOS: u32 = 1;

/// Reads the head of a file.
///
/// # Errors
/// When it is no 64-bit Mach-O file, or ends too early.
pub fn read(bytes: &[u8]) -> anyhow::Result<Program> {
    ensure!(word(bytes, 0)? == MAGIC, "no 64-bit Mach-O file");
    let mut program = Program {
        is_arm64_executable: word(bytes, 4)? == CPU_ARM64 && word(bytes, 12)? == EXECUTABLE,
        ..Program::default()
    };
    let mut at = HEADER;
    for _ in 0..word(bytes, 16)? {
        let (kind, length) = (word(bytes, at)?, word(bytes, at + 4)? as usize);
        ensure!(length >= 8, "a load command of {length} B");
        match kind {
            LOAD_LIBRARY | LOAD_WEAK_LIBRARY => {
                let name = at + word(bytes, at + 8)? as usize;
                let text = bytes.get(name..at + length).context("a name beyond its command")?;
                let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
                program.libraries.insert(String::from_utf8_lossy(text).into_owned());
            }
            CODE_SIGNATURE => program.is_signed = true,
            BUILD_VERSION if word(bytes, at + 8)? == MACOS => {
                let version = word(bytes, at + 12)?;
                program.least_macos = Some((version >> 16, version >> 8 & 0xff));
            }
            _ => {}
        }
        at += length;
    }
    Ok(program)
}

fn word(bytes: &[u8], at: usize) -> anyhow::Result<u32> {
    let four = bytes.get(at..at + 4).with_context(|| format!("the file ends before {at}"))?;
    Ok(u32::from_le_bytes(four.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_commands_are_read_and_nonsense_is_refused() {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let mut file = words(&[MAGIC, CPU_ARM64, 0, EXECUTABLE, 3, 0, 0, 0]);
        file.extend(words(&[LOAD_LIBRARY, 32, 24, 0, 0, 0]));
        file.extend(b"/a.dyl\0\0");
        file.extend(words(&[BUILD_VERSION, 16, MACOS, 11 << 16]));
        file.extend(words(&[CODE_SIGNATURE, 8]));
        let program = read(&file).unwrap();
        assert!(program.is_arm64_executable && program.is_signed);
        assert_eq!(program.libraries, BTreeSet::from(["/a.dyl".to_owned()]));
        assert_eq!(program.least_macos, Some((11, 0)));
        assert!(read(b"\x7fELF").is_err());
        assert!(read(&file[..40]).is_err());
    }
}

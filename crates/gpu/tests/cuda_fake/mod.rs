//! Builds the library of `library.rs` and sets its faults.

#![allow(dead_code)]

use everwarm_gpu::backend::cuda::{Libraries, use_libraries};
use libloading::Library;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What the library can be made to do wrong while it runs. Other things are configurations that it is
/// compiled in: `old_driver` lacks a function, `refusing_driver` finds no device, `empty_driver` has
/// none, `blank_library` is no driver at all.
#[derive(Clone, Copy)]
pub enum Fault {
    /// `cuLaunchKernel` does.
    Launch = 1,
    /// All memory is taken.
    Memory = 2,
    /// Nothing ends any more, and whoever asks is told this code.
    Lost = 3,
    /// Kernels end without stamps.
    Mute = 4,
    /// `cuDevicePrimaryCtxRetain` answers with this code.
    Context = 5,
    /// The timer's step is this. Unit: ns.
    TimerStep = 6,
    /// NVML's reasons for a lower clock.
    Reasons = 7,
    /// `cuMemHostGetDevicePointer` answers with this code.
    Pointer = 8,
    /// Allocating memory takes so long. Unit: ms.
    SlowMemory = 9,
    /// The timer's own kernels wait so long for other work to end. Unit: ms.
    Busy = 10,
}

/// The library, loaded beside the backend's own loading of it.
pub struct Fake {
    library: Library,
}

/// The fake of this test program; the backend uses it from now on.
pub fn fake() -> &'static Fake {
    static FAKE: OnceLock<Fake> = OnceLock::new();
    FAKE.get_or_init(|| {
        let folder = build(&[]);
        let driver = folder.join("libcuda.so.1");
        assert!(use_libraries(libraries(&folder)), "the fake comes first");
        // SAFETY: it is the library that was just built; it has no initialisers.
        let library = unsafe { Library::new(&driver) }.expect("what was built can be loaded");
        Fake { library }
    })
}

/// Both of NVIDIA's libraries are one file in `folder`: faults are set in it.
pub fn libraries(folder: &Path) -> Libraries {
    Libraries { driver: folder.join("libcuda.so.1"), management: folder.join("libcuda.so.1") }
}

/// The folder of the library in that configuration, under both of NVIDIA's names. It is compiled once
/// for all tests and processes, until a text of it changes.
pub fn build(configuration: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name(configuration));
    if !folder.exists() {
        remove_older(&folder, configuration);
        // Beside it at first: another process may be at the same, and finds it whole or not at all.
        let mut beside = folder.clone().into_os_string();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        compile(&beside, configuration);
        if std::fs::rename(&beside, &folder).is_err() {
            std::fs::remove_dir_all(&beside).unwrap();
        }
    }
    folder
}

const TEXTS: [&str; 3] = ["library.rs", "kernels.rs", "management.rs"];

fn text(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda_fake").join(name)
}

/// What all texts of a configuration are called.
fn stem(configuration: &[&str]) -> String {
    format!("cuda-{}-", configuration.first().unwrap_or(&"fake"))
}

/// A name that changes with the texts.
fn name(configuration: &[&str]) -> String {
    let mut hasher = DefaultHasher::new();
    for name in TEXTS {
        std::fs::read(text(name)).unwrap().hash(&mut hasher);
    }
    format!("{}{:016x}", stem(configuration), hasher.finish())
}

/// Removes what was made of other texts. A process that still uses it has loaded it.
fn remove_older(folder: &Path, configuration: &[&str]) {
    let stem = stem(configuration);
    for entry in std::fs::read_dir(folder.parent().unwrap()).into_iter().flatten().flatten() {
        let is_whole = entry.path().extension().is_none();
        if is_whole && entry.file_name().to_string_lossy().starts_with(&stem) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Compiles the library into `folder`.
fn compile(folder: &Path, configuration: &[&str]) {
    std::fs::create_dir_all(folder).unwrap();
    let driver = folder.join("libcuda.so.1");
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let mut command = Command::new(compiler);
    command.args([
        "--edition=2024",
        "--crate-type=cdylib",
        "-Anon_snake_case",
        "-Aunexpected_cfgs",
        "-Adead_code",
        // Of its 4.5 MB nearly all would be the standard library's debug information.
        "-Cstrip=symbols",
        "-o",
    ]);
    command.arg(&driver).arg(text("library.rs"));
    command.args(configuration.iter().flat_map(|cfg| ["--cfg", cfg]));
    assert!(command.status().expect("rustc runs").success(), "the fake compiles");
    std::fs::hard_link(&driver, folder.join("libnvidia-ml.so.1")).unwrap();
}

impl Fake {
    pub fn set(&self, fault: Fault, value: u32) {
        // SAFETY: the signature is that of `library.rs`.
        let set = unsafe { self.library.get::<extern "C" fn(u32, u32)>(b"fake_fault") }.unwrap();
        set(fault as u32, value);
    }

    /// The rules that were broken so far.
    pub fn broken(&self) -> String {
        let mut text = vec![0u8; 10_000];
        // SAFETY: the signature is that of `library.rs`; it writes at most as much as there is room.
        unsafe {
            let read =
                self.library.get::<extern "C" fn(*mut u8, usize) -> usize>(b"fake_broken").unwrap();
            read(text.as_mut_ptr(), text.len());
        }
        let end = text.iter().position(|b| *b == 0).unwrap_or(0);
        String::from_utf8_lossy(&text[..end]).into_owned()
    }

    /// How often the timer was asked so far, in bursts.
    pub fn bursts(&self) -> usize {
        // SAFETY: the signature is that of `library.rs`.
        let bursts = unsafe { self.library.get::<extern "C" fn() -> usize>(b"fake_bursts") };
        bursts.unwrap()()
    }

    /// How many things of the driver this process holds.
    pub fn held(&self) -> usize {
        // SAFETY: the signature is that of `library.rs`.
        let held = unsafe { self.library.get::<extern "C" fn() -> usize>(b"fake_held") }.unwrap();
        held()
    }
}

//! Builds the library of `library.rs` and sets its faults.

#![allow(dead_code)]

use everwarm_gpu::backend::cuda::{Libraries, use_libraries};
use libloading::Library;
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
}

/// The library, loaded beside the backend's own loading of it.
pub struct Fake {
    library: Library,
}

/// The fake of this test program; the backend uses it from now on.
pub fn fake() -> &'static Fake {
    static FAKE: OnceLock<Fake> = OnceLock::new();
    FAKE.get_or_init(|| {
        let folder = build("fake", &[]);
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

/// Compiles the library into a folder of its own, under both of NVIDIA's names.
pub fn build(name: &str, configuration: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.join(format!("cuda-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda_fake/library.rs");
    let driver = folder.join("libcuda.so.1");
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let mut command = Command::new(compiler);
    command.args([
        "--edition=2024",
        "--crate-type=cdylib",
        "-Anon_snake_case",
        "-Aunexpected_cfgs",
        "-Adead_code",
        "-o",
    ]);
    command.arg(&driver).arg(source);
    command.args(configuration.iter().flat_map(|cfg| ["--cfg", cfg]));
    assert!(command.status().expect("rustc runs").success(), "the fake compiles");
    std::fs::copy(&driver, folder.join("libnvidia-ml.so.1")).unwrap();
    folder
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

    /// How many things of the driver this process holds.
    pub fn held(&self) -> usize {
        // SAFETY: the signature is that of `library.rs`.
        let held = unsafe { self.library.get::<extern "C" fn() -> usize>(b"fake_held") }.unwrap();
        held()
    }
}

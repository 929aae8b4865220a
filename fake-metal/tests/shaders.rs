//! The unchanged text of kernels.metal, compiled by clang and run on the CPU, computes what a Rust
//! reference computes, bit for bit; and mistakes in it are found, by clang or by src/msl.rs.
//!
//! It says nothing of Apple's compiler. The compiler's command is in `EVERWARM_CLANG`, else `clang++`.

use fake_metal::msl;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

const KERNELS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/gpu/src/backend/metal/kernels.metal");
const SHIM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/shim");

/// A compiler with the shim, told where the kernels stand.
fn clang(kernels: &Path) -> Command {
    let words = std::env::var("EVERWARM_CLANG").unwrap_or_else(|_| "clang++".to_owned());
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).args(["-x", "c++", "-std=c++17", "-nostdinc", "-O2", "-fPIC"]);
    command.args(["-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-fno-sanitize=undefined"]);
    command.args(["-Wall", "-Wno-unknown-attributes", "-Werror", "-I", SHIM]);
    if cfg!(target_arch = "x86_64") {
        command.arg("-mfma");
    }
    command.arg(format!("-DKERNELS=\"{}\"", kernels.display()));
    command.arg(format!("{SHIM}/cpu.cpp"));
    command
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// The kernels as a library of this process.
struct Cpu(*mut c_void);

impl Cpu {
    fn load() -> Self {
        let (object, library) = (folder().join("kernels.o"), folder().join("kernels.so"));
        let status = clang(Path::new(KERNELS)).arg("-c").arg("-o").arg(&object).status();
        assert!(status.expect("there is a clang").success());
        let link = Command::new("cc").args(["-shared", "-o"]).arg(&library).arg(&object).status();
        assert!(link.expect("there is a linker").success());
        let path = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: it has no code that runs when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "it can be loaded");
        Cpu(handle)
    }

    /// The address of a function, which the caller gives its type.
    fn function(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the handle is of a library that stays loaded.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is there");
        address
    }
}

fn exclusive_or(words: impl IntoIterator<Item = u32>) -> u32 {
    words.into_iter().fold(0, |sum, word| sum ^ word)
}

#[test]
fn kernels_compute_what_the_reference_computes() {
    let cpu = Cpu::load();
    chain(&cpu);
    read(&cpu);
    product(&cpu);
}

fn chain(cpu: &Cpu) {
    type Run = extern "C" fn(*mut f32, *const [u32; 2], u32);
    // SAFETY: shim/cpu.cpp declares them so.
    let run: Run = unsafe { std::mem::transmute(cpu.function("cpu_fma_chain")) };
    // SAFETY: as above.
    let nothing: extern "C" fn(*mut f32, u32) =
        unsafe { std::mem::transmute(cpu.function("cpu_nothing")) };
    for iterations in [0, 1, 2, 1000] {
        let mut sink = vec![-7.0f32; 65_536];
        run(sink.as_mut_ptr(), &[iterations, 1500], 2000);
        for (id, got) in sink.iter().enumerate() {
            let start = (id & 1023) as f32 * 0.0009765625 - 0.5;
            let end = (0..2 * iterations).fold(start, |x, _| x.mul_add(x, -1.8));
            let expected = if id < 1500 { end } else { -7.0 };
            assert_eq!(got.to_bits(), expected.to_bits(), "thread {id}, {iterations} iterations");
            assert!(end.abs() <= 1.9, "it stays where the kernel says");
        }
        nothing(sink.as_mut_ptr(), 1);
        assert_eq!(sink[0], 0.0);
    }
}

fn read(cpu: &Cpu) {
    type Run = extern "C" fn(*mut u32, *const u32, *const [u32; 2], u32);
    // SAFETY: shim/cpu.cpp declares it so.
    let run: Run = unsafe { std::mem::transmute(cpu.function("cpu_streaming_read")) };
    // 4,096 words of 16 bytes, on a boundary of 16.
    let memory: Vec<u128> =
        (0..4096u128).map(|i| (i * 0x9e37_79b9_7f4a_7c15_f39c) ^ (i << 90)).collect();
    let words: Vec<u32> =
        memory.iter().flat_map(|w| (0..4).map(move |n| (w >> (32 * n)) as u32)).collect();
    for (count, threads) in [(1, 1), (4096, 64), (10_000, 64), (65_536 + 3, 1000)] {
        let mut sink = vec![0u32; 65_536];
        run(sink.as_mut_ptr(), memory.as_ptr().cast(), &[count, 4095], threads);
        let expected =
            (0..count as usize).flat_map(|i| words[4 * (i & 4095)..][..4].iter().copied());
        assert_eq!(exclusive_or(sink.iter().copied()), exclusive_or(expected), "{count} words");
        assert!(sink[threads as usize..].iter().all(|word| *word == 0), "none writes elsewhere");
    }
}

fn product(cpu: &Cpu) {
    type Run = extern "C" fn(*mut f32, *const f32, *const f32, u32);
    // SAFETY: shim/cpu.cpp declares it so.
    let run: Run = unsafe { std::mem::transmute(cpu.function("cpu_matrix_product")) };
    #[repr(align(16))]
    struct Matrix([f32; 20 * 20]);
    let n = 20;
    let filled = |f: fn(usize) -> f32| Matrix(std::array::from_fn(f));
    let left = filled(|i| (i % 13) as f32 * 0.37 - 1.0);
    let right = filled(|i| (i % 7) as f32 * 0.11 - 0.2);
    let mut product = filled(|_| f32::NAN);
    run(product.0.as_mut_ptr(), left.0.as_ptr(), right.0.as_ptr(), n as u32 / 4);
    for (row, column) in (0..n * n).map(|i| (i / n, i % n)) {
        let terms = (0..n).map(|k| (left.0[row * n + k], right.0[k * n + column]));
        let expected = terms.fold(0.0f32, |sum, (l, r)| l.mul_add(r, sum));
        assert_eq!(product.0[row * n + column], expected, "row {row}, column {column}");
    }
}

#[test]
fn mistakes_in_the_text_are_found() {
    let text = std::fs::read_to_string(KERNELS).unwrap();
    let found = |name: &str, text: &str| {
        let path = folder().join(format!("{name}.metal"));
        std::fs::write(&path, text).unwrap();
        let output = clang(&path)
            .args(["-c", "-o"])
            .arg(folder().join("mistake.o"))
            .output()
            .expect("there is a clang");
        let said = msl::kernels(text).err().unwrap_or_default();
        match output.status.success() {
            true => said,
            false => said + &String::from_utf8_lossy(&output.stderr),
        }
    };
    assert_eq!(found("as-it-is", &text), "");
    let mistakes = [
        ("function", "x = fma(x, x, -1.8f);", "x = fmad(x, x, -1.8f);", "fmad"),
        ("swizzle", "sum.x ^ sum.y", "sum.x ^ sum.q", "'q'"),
        ("reference", "constant Chain &chain", "constant Chain *chain", "chain"),
        (
            "attribute",
            "&chain [[buffer(1)]]",
            "&chain [[bufer(1)]]",
            "unknown attribute [[bufer(1)]]",
        ),
        ("space", "device const uint4 *source", "const uint4 *source", "in no address space"),
        (
            "position",
            "uint2 at [[thread_position_in_grid]]",
            "uint2 at [[threads_per_grid]]",
            "no argument has",
        ),
        ("index", "*right [[buffer(2)]]", "*right [[buffer(1)]]", "are both buffer(1)"),
        ("structure", "    uint mask;", "    float mask;", "is no uint"),
    ];
    for (name, from, to, expected) in mistakes {
        assert!(text.contains(from), "{name}: there is `{from}`");
        let said = found(name, &text.replacen(from, to, 1));
        assert!(said.contains(expected), "{name}: `{expected}` in\n{said}");
    }
}

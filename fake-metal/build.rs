//! objc2 asks the linker for two libraries whose functions stand in this crate: gives it empty ones.

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo names a folder");
    for library in ["objc", "gnustep-base"] {
        std::fs::write(format!("{out}/lib{library}.a"), b"!<arch>\n").expect("it can be written");
    }
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rerun-if-changed=build.rs");
}

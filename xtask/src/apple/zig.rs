//! Clang with macOS's C headers and the list of what its system library exports: the package `ziglang`
//! of PyPI, in a venv of its own (440 MB).
//!
//! It compiles the little C that the binary contains, and the Metal kernels for this machine's CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::{setup, shell};

/// What is installed.
const REQUIREMENTS: &str = "tools/apple/requirements.txt";

/// Zig's files.
pub struct Zig {
    folder: PathBuf,
}

impl Zig {
    /// Installs it, unless it is there.
    ///
    /// # Errors
    /// When Python can't make a venv or the package can't be had.
    pub fn ready() -> anyhow::Result<Self> {
        setup::system_packages()?;
        let venv = shell::root().join(".venv-apple");
        let wanted = fs::read_to_string(shell::root().join(REQUIREMENTS))?;
        let stamp = venv.join("everwarm-stamp");
        if fs::read_to_string(&stamp).ok().as_deref() != Some(wanted.as_str()) {
            if venv.exists() {
                fs::remove_dir_all(&venv)?;
            }
            println!("making {} (half a minute, 0.5 GB)", shell::relative(&venv));
            shell::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            let mut pip = Command::new(venv.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
            shell::run(
                pip.args(["--no-input", "--no-deps", "-r", REQUIREMENTS])
                    .current_dir(shell::root()),
            )?;
            fs::write(&stamp, wanted)?;
        }
        let mut python = Command::new(venv.join("bin/python"));
        let said = shell::output(python.args(["-c", "import ziglang; print(ziglang.__file__)"]))?;
        let folder = Path::new(said.trim()).parent().context("ziglang stands nowhere")?;
        Ok(Zig { folder: folder.to_path_buf() })
    }

    /// A C++ compiler for this machine, as one writes it.
    pub fn native(&self) -> String {
        format!("{} c++", self.folder.join("zig").display())
    }

    /// The variables of the environment that keep its caches in our folder.
    pub fn caches() -> [(&'static str, PathBuf); 2] {
        let cache = shell::root().join("target/apple/zig-cache");
        [("ZIG_GLOBAL_CACHE_DIR", cache.clone()), ("ZIG_LOCAL_CACHE_DIR", cache)]
    }

    /// The list of what macOS's system library exports.
    pub fn system_library(&self) -> PathBuf {
        self.folder.join("lib/libc/darwin/libSystem.tbd")
    }

    /// Writes a C compiler for macOS to `path`: a script that leaves out the words for Apple's clang.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write_compiler(&self, path: &Path) -> anyhow::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let zig = self.folder.join("zig");
        let text = format!(
            "#!/bin/sh\nfor word; do\n  shift\n  case \"$word\" in\n    \
             -arch|arm64|--target=*|-mmacosx-version-min=*) ;;\n    \
             *) set -- \"$@\" \"$word\" ;;\n  esac\ndone\n\
             exec '{}' cc -fno-sanitize=undefined -target aarch64-macos.11.0 \"$@\"\n",
            zig.display()
        );
        // Left alone where it is right: cargo would build anew what was compiled with another one.
        if fs::read_to_string(path).ok().as_deref() != Some(text.as_str()) {
            fs::write(path, text)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }
}

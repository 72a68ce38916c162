//! Builds the statically linked program.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::binaries::Artifacts;
use crate::cargo::{Metadata, cargo, root};
use crate::process::execute;

/// Options of rustc for the program. The C library is linked statically, and debug
/// information and symbols are left out.
const OPTIONS: [&str; 4] = ["-C", "target-feature=+crt-static", "-C", "strip=symbols"];

/// Type of the program header that names the dynamic linker: `PT_INTERP` of linux/elf.h.
const PT_INTERP: u32 = 3;

/// Builds the program with a cargo profile and returns its content.
pub(super) fn build(metadata: &Metadata, profile: &str) -> Result<Vec<u8>> {
    let target = [
        "rustc",
        "--locked",
        "--package=kube-proxy",
        "--bin=kube-proxy",
        "--profile",
        profile,
        "--",
    ];
    execute(&mut cargo([&target[..], &OPTIONS].concat()))?;
    // The folder of this profile has another name.
    let folder = if profile == "dev" { "debug" } else { profile };
    read(&metadata.target_directory.join(folder).join("kube-proxy"))
}

/// Links the program with the library in `built`, and returns its content.
pub(super) fn link(metadata: &Metadata, built: &Artifacts) -> Result<Vec<u8>> {
    let library = built.library(&root().join("examples/kube-proxy"));
    let library = library.context("cargo built no library of kube-proxy")?;
    let folder = metadata.target_directory.join("image/check");
    fs::create_dir_all(&folder)?;
    let program = folder.join("kube-proxy");
    let mut dependencies = library.clone();
    dependencies.pop();
    if !dependencies.ends_with("deps") {
        dependencies.push("deps");
    }
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args(["--crate-name=kube_proxy_image", "--edition=2024"])
        .args(OPTIONS)
        .arg("-L")
        .arg(assignment("dependency", &dependencies))
        .arg("--extern")
        .arg(assignment("kube_proxy", &library))
        .arg("-o")
        .arg(&program)
        .arg("examples/kube-proxy/src/main.rs")
        .current_dir(root())
        .stdin(Stdio::null());
    execute(&mut rustc)?;
    read(&program)
}

/// Builds kube-proxy with the features of the tests.
///
/// Compiles nothing after the tests were built.
pub(super) fn artifacts() -> Result<Artifacts> {
    let bins = ["test", "--workspace", "--bins", "--no-run", "--quiet"];
    Artifacts::build(&mut cargo(bins))
}

fn assignment(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

/// Reads a program.
///
/// # Errors
///
/// If the program needs a dynamic linker.
fn read(path: &Path) -> Result<Vec<u8>> {
    let content = fs::read(path).with_context(|| path.display().to_string())?;
    match needs_dynamic_linker(&content) {
        Some(false) => Ok(content),
        Some(true) => bail!("{}: not statically linked", path.display()),
        None => bail!("{}: not a program of this architecture", path.display()),
    }
}

/// Returns whether an ELF file has a program header `PT_INTERP`; nothing if the file is
/// not a little-endian ELF file of 64 bits.
fn needs_dynamic_linker(content: &[u8]) -> Option<bool> {
    let bytes = |at: usize, length: usize| content.get(at..at.checked_add(length)?);
    let short = |at| Some(u16::from_le_bytes(bytes(at, 2)?.try_into().ok()?));
    let word = |at| Some(u32::from_le_bytes(bytes(at, 4)?.try_into().ok()?));
    // Fields of struct `Elf64_Ehdr`: e_ident, e_phoff, e_phentsize and e_phnum.
    (bytes(0, 6)? == b"\x7fELF\x02\x01").then_some(())?;
    let start = usize::try_from(word(32)?).ok()?;
    let (size, count) = (usize::from(short(54)?), usize::from(short(56)?));
    let kinds = (0..count).map(|number| word(start + number * size));
    let kinds: Option<Vec<u32>> = kinds.collect();
    Some(kinds?.contains(&PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_dynamic_linker_is_an_error() {
        let error = read(&env::current_exe().unwrap()).unwrap_err().to_string();
        assert!(error.ends_with(": not statically linked"), "{error}");
        let error = read(&root().join("Cargo.toml")).unwrap_err().to_string();
        assert!(
            error.ends_with(": not a program of this architecture"),
            "{error}"
        );
    }
}

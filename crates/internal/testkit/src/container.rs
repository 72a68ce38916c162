//! Processes with the restrictions of a container.
//!
//! Performs the steps of runc between `fork` and `execve`, in the same order, for a
//! container with `runAsUser`, `capabilities: {drop: [ALL], add: [NET_ADMIN]}`,
//! `allowPrivilegeEscalation: false` and a seccomp profile.

use std::env::consts::ARCH;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use seccompiler::BpfProgram;
use serde_json::{Value, json};

/// Only capability of the container.
const CAPABILITY: CapabilitySet = CapabilitySet::NET_ADMIN;

/// `VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE` of linux/capability.h.
const REVISION: u32 = 0x0200_0001;

/// Restrictions of a container: user, CAP_NET_ADMIN and a seccomp filter.
#[derive(Clone, Debug)]
pub struct Container {
    user: u32,
    filter: BpfProgram,
}

impl Container {
    /// Creates a container with a user ID and a seccomp profile in the format of container
    /// runtimes. Supports only allow lists.
    ///
    /// # Errors
    ///
    /// If the profile is invalid.
    pub fn new(user: u32, profile: &str) -> io::Result<Self> {
        let filter = filter(profile)?;
        Ok(Self { user, filter })
    }

    /// Makes a command enter the container when it is started.
    #[allow(unsafe_code, reason = "the closure runs between fork and execve")]
    pub fn confine(&self, command: &mut Command) {
        let Self { user, filter } = self.clone();
        // SAFETY: the closure only makes system calls and does not allocate.
        unsafe { command.pre_exec(move || enter(user, &filter)) };
    }
}

fn enter(user: u32, filter: &BpfProgram) -> io::Result<()> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if capability != CAPABILITY {
            match remove_capability_from_bounding_set(capability) {
                // The kernel does not know the capability.
                Err(rustix::io::Errno::INVAL) => {}
                result => result?,
            }
        }
    }
    set_keep_capabilities(true)?;
    let (group, user) = (Gid::from_raw(user), Uid::from_raw(user));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    set_keep_capabilities(false)?;
    let sets = CapabilitySets {
        effective: CAPABILITY,
        permitted: CAPABILITY,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    set_no_new_privs(true)?;
    seccompiler::apply_filter(filter).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))
}

/// Adds CAP_NET_ADMIN to a program file, as `setcap cap_net_admin+ep` does.
///
/// # Errors
///
/// If the extended attribute cannot be set.
pub fn grant_net_admin(program: &Path) -> io::Result<()> {
    let permitted = CAPABILITY.bits() as u32;
    let words = [REVISION, permitted, 0, 0, 0].map(u32::to_le_bytes);
    let name = "security.capability";
    Ok(setxattr(
        program,
        name,
        words.as_flattened(),
        XattrFlags::empty(),
    )?)
}

/// Compiles a seccomp profile.
fn filter(profile: &str) -> io::Result<BpfProgram> {
    let profile: Value = serde_json::from_str(profile)?;
    let rules = profile["syscalls"].as_array().into_iter().flatten();
    let allowed: Vec<Value> = rules.flat_map(allowed).collect();
    let main = json!({
        "mismatch_action": { "errno": profile["defaultErrnoRet"] },
        "match_action": "allow",
        "filter": allowed,
    });
    let text = json!({ "main": main }).to_string();
    let arch = ARCH.try_into().map_err(io::Error::other)?;
    let compiled = seccompiler::compile_from_json(text.as_bytes(), arch);
    let mut programs = compiled.map_err(io::Error::other)?;
    programs
        .remove("main")
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Converts an allow rule of a profile. Supports the operation `SCMP_CMP_MASKED_EQ`.
fn allowed(rule: &Value) -> Vec<Value> {
    let tests = rule["args"].as_array().into_iter().flatten();
    let tests: Vec<Value> = tests
        .map(|test| {
            json!({
                "index": test["index"],
                "type": "qword",
                "op": { "masked_eq": test["value"] },
                "val": test["valueTwo"],
            })
        })
        .collect();
    let names = rule["names"].as_array().into_iter().flatten();
    let call = |name: &Value| match tests.is_empty() {
        true => json!({ "syscall": name }),
        false => json!({ "syscall": name, "args": tests }),
    };
    names.map(call).collect()
}

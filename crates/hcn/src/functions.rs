//! Functions of Windows that windows-sys does not declare.
#![allow(unsafe_code, reason = "the functions of Windows are foreign")]
#![cfg_attr(not(windows), allow(dead_code, reason = "compiled to check its types"))]

use std::ffi::{CStr, c_void};
use std::mem::transmute_copy;
use std::ptr::null_mut;
use std::sync::OnceLock;

use windows_sys::Win32::Foundation::FARPROC;
use windows_sys::Win32::System::LibraryLoader::{
    GetProcAddress, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, LoadLibraryExW,
};
use windows_sys::core::{GUID, HRESULT, PCWSTR, PWSTR, w};

#[cfg_attr(windows, link(name = "vmcompute", kind = "raw-dylib"))]
unsafe extern "system" {
    pub(crate) fn HNSCall(
        method: PCWSTR,
        path: PCWSTR,
        object: PCWSTR,
        response: *mut PWSTR,
    ) -> HRESULT;
}

/// The functions for objects of one kind.
pub(crate) struct Calls {
    /// Name of the kind.
    pub(crate) kind: &'static str,
    pub(crate) enumerate: unsafe extern "system" fn(PCWSTR, *mut PWSTR, *mut PWSTR) -> HRESULT,
    pub(crate) open:
        unsafe extern "system" fn(*const GUID, *mut *mut c_void, *mut PWSTR) -> HRESULT,
    pub(crate) modify: unsafe extern "system" fn(*const c_void, PCWSTR, *mut PWSTR) -> HRESULT,
    pub(crate) query:
        unsafe extern "system" fn(*const c_void, PCWSTR, *mut PWSTR, *mut PWSTR) -> HRESULT,
    pub(crate) delete: unsafe extern "system" fn(*const GUID, *mut PWSTR) -> HRESULT,
    pub(crate) close: unsafe extern "system" fn(*const c_void) -> HRESULT,
}

/// The functions for SDN routes. Their parameters are those of the functions for load
/// balancers.
pub(crate) struct SdnRoutes {
    pub(crate) calls: Calls,
    pub(crate) create:
        unsafe extern "system" fn(*const GUID, PCWSTR, *mut *mut c_void, *mut PWSTR) -> HRESULT,
}

impl SdnRoutes {
    /// Returns the functions. `None` if this version of Windows lacks one.
    pub(crate) fn get() -> Option<&'static Self> {
        static FUNCTIONS: OnceLock<Option<SdnRoutes>> = OnceLock::new();
        // SAFETY: The fields have the types of the functions.
        let load = || unsafe {
            Some(Self {
                calls: Calls {
                    kind: "SDN route",
                    enumerate: function(c"HcnEnumerateSdnRoutes")?,
                    open: function(c"HcnOpenSdnRoute")?,
                    modify: function(c"HcnModifySdnRoute")?,
                    query: function(c"HcnQuerySdnRouteProperties")?,
                    delete: function(c"HcnDeleteSdnRoute")?,
                    close: function(c"HcnCloseSdnRoute")?,
                },
                create: function(c"HcnCreateSdnRoute")?,
            })
        };
        FUNCTIONS.get_or_init(load).as_ref()
    }
}

/// Returns a function of `computenetwork.dll`.
///
/// # Safety
///
/// `F` is the type of the function.
unsafe fn function<F>(name: &CStr) -> Option<F> {
    let library = w!("computenetwork.dll");
    // SAFETY: The names end with a terminator. The library is never unloaded, so that the
    // function stays valid.
    unsafe {
        let library = LoadLibraryExW(library, null_mut(), LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
        if library.is_null() {
            return None;
        }
        let function: FARPROC = GetProcAddress(library, name.as_ptr().cast());
        function.map(|function| transmute_copy(&function))
    }
}

//! Functions of Windows that windows-sys does not declare.
#![allow(unsafe_code, reason = "the functions of Windows are foreign")]
#![cfg_attr(not(windows), allow(dead_code, reason = "compiled to check its types"))]

use std::ffi::c_void;

use windows_sys::core::{GUID, HRESULT, PCWSTR, PWSTR};

#[cfg_attr(windows, link(name = "vmcompute", kind = "raw-dylib"))]
unsafe extern "system" {
    pub(crate) fn HNSCall(
        method: PCWSTR,
        path: PCWSTR,
        object: PCWSTR,
        response: *mut PWSTR,
    ) -> HRESULT;
}

// The parameters are those of the functions for load balancers.
#[cfg_attr(windows, link(name = "computenetwork", kind = "raw-dylib"))]
unsafe extern "system" {
    pub(crate) fn HcnEnumerateSdnRoutes(
        query: PCWSTR,
        routes: *mut PWSTR,
        error: *mut PWSTR,
    ) -> HRESULT;

    pub(crate) fn HcnCreateSdnRoute(
        id: *const GUID,
        settings: PCWSTR,
        route: *mut *mut c_void,
        error: *mut PWSTR,
    ) -> HRESULT;

    pub(crate) fn HcnOpenSdnRoute(
        id: *const GUID,
        route: *mut *mut c_void,
        error: *mut PWSTR,
    ) -> HRESULT;

    pub(crate) fn HcnModifySdnRoute(
        route: *const c_void,
        settings: PCWSTR,
        error: *mut PWSTR,
    ) -> HRESULT;

    pub(crate) fn HcnQuerySdnRouteProperties(
        route: *const c_void,
        query: PCWSTR,
        properties: *mut PWSTR,
        error: *mut PWSTR,
    ) -> HRESULT;

    pub(crate) fn HcnDeleteSdnRoute(id: *const GUID, error: *mut PWSTR) -> HRESULT;

    pub(crate) fn HcnCloseSdnRoute(route: *const c_void) -> HRESULT;
}

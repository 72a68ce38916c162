//! The functions of `computenetwork.dll` and `vmcompute.dll`.
#![allow(unsafe_code, reason = "programs call the functions across an ABI")]

use std::env;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use vipline_hcn::{Endpoint, HResult, Id, LoadBalancer, Network};
use windows_sys::Win32::System::Com::CoTaskMemAlloc;
use windows_sys::core::{GUID, HRESULT, PCWSTR, PWSTR};

use crate::server::{Failure, Object, STATE, Server};

/// `S_OK`.
const OK: HRESULT = 0;

/// A call at a time: each one reads and writes the file.
static CALL: Mutex<()> = Mutex::new(());

/// Runs a call, and returns its code.
fn call(work: impl FnOnce(&Server) -> Result<(), Failure>) -> HRESULT {
    let _guard = CALL.lock().unwrap_or_else(PoisonError::into_inner);
    let file = PathBuf::from(env::var_os(STATE).unwrap_or_default());
    match work(&Server::new(&file)) {
        Ok(()) => OK,
        Err(failure) => failure.code().code().cast_signed(),
    }
}

/// Reads text.
///
/// # Safety
///
/// The pointer is null, or points to UTF-16 with a terminator.
unsafe fn text(at: PCWSTR) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: The text ends with a terminator.
    let units = unsafe {
        let length = (0..).take_while(|&index| *at.add(index) != 0).count();
        std::slice::from_raw_parts(at, length)
    };
    String::from_utf16_lossy(units)
}

/// Returns text in memory that the caller frees with `CoTaskMemFree`.
///
/// # Safety
///
/// The pointer is null or valid.
unsafe fn reply(at: *mut PWSTR, text: &str) {
    if at.is_null() {
        return;
    }
    let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
    // SAFETY: The allocation has room for all units.
    unsafe {
        let copy: PWSTR = CoTaskMemAlloc(units.len() * 2).cast();
        std::ptr::copy_nonoverlapping(units.as_ptr(), copy, units.len());
        *at = copy;
    }
}

/// Returns the identifier of a GUID. A GUID of zeros is none.
///
/// # Safety
///
/// The pointer is valid.
unsafe fn id(at: *const GUID) -> Id {
    // SAFETY: The pointer is valid.
    let guid = unsafe { &*at };
    let number = u128::from(guid.data1) << 96
        | u128::from(guid.data2) << 80
        | u128::from(guid.data3) << 64
        | u128::from(u64::from_be_bytes(guid.data4));
    match number {
        0 => Id::default(),
        number => Id::from_u128(number),
    }
}

/// Opens a handle, which is the identifier of the object.
fn handle(id: Id) -> *mut c_void {
    Box::into_raw(Box::new(id)).cast()
}

/// Returns the object of a handle.
///
/// # Safety
///
/// The handle is null or open.
unsafe fn object(handle: *const c_void) -> Id {
    if handle.is_null() {
        return Id::default();
    }
    // SAFETY: The handle is open.
    unsafe { (*handle.cast::<Id>()).clone() }
}

/// Creates an object, and opens a handle.
///
/// # Safety
///
/// All pointers are valid, and the network is null or open.
unsafe fn create<T: Object>(
    network: *const c_void,
    guid: *const GUID,
    settings: PCWSTR,
    opened: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: All pointers are valid.
    unsafe {
        let (network, id, settings) = (object(network), id(guid), text(settings));
        call(|hns| {
            *opened = handle(hns.create::<T>(&network, id, &settings)?);
            Ok(())
        })
    }
}

/// Defines the functions for objects of a kind.
macro_rules! functions {
    ($kind:ty, $missing:ident: $enumerate:ident, $open:ident, $modify:ident, $query:ident,
     $delete:ident, $close:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "system" fn $enumerate(
            query: PCWSTR,
            ids: *mut PWSTR,
            _: *mut PWSTR,
        ) -> HRESULT {
            // SAFETY: The caller passes valid pointers.
            unsafe {
                let query = text(query);
                call(|hns| Ok(reply(ids, &hns.enumerate::<$kind>(&query)?)))
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "system" fn $open(
            guid: *const GUID,
            opened: *mut *mut c_void,
            _: *mut PWSTR,
        ) -> HRESULT {
            // SAFETY: The caller passes valid pointers.
            unsafe {
                let id = id(guid);
                call(|hns| {
                    hns.get::<$kind>(&id, HResult::$missing)?;
                    *opened = handle(id);
                    Ok(())
                })
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "system" fn $modify(
            opened: *const c_void,
            settings: PCWSTR,
            _: *mut PWSTR,
        ) -> HRESULT {
            // SAFETY: The caller passes valid pointers and an open handle.
            unsafe {
                let (id, settings) = (object(opened), text(settings));
                call(|hns| hns.modify::<$kind>(&id, &settings))
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "system" fn $query(
            opened: *const c_void,
            _: PCWSTR,
            document: *mut PWSTR,
            _: *mut PWSTR,
        ) -> HRESULT {
            // SAFETY: The caller passes valid pointers and an open handle.
            unsafe {
                let id = object(opened);
                call(|hns| Ok(reply(document, &hns.get::<$kind>(&id, HResult::$missing)?)))
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "system" fn $delete(guid: *const GUID, _: *mut PWSTR) -> HRESULT {
            // SAFETY: The caller passes a valid pointer.
            let id = unsafe { id(guid) };
            call(|hns| hns.delete::<$kind>(&id))
        }

        #[unsafe(no_mangle)]
        unsafe extern "system" fn $close(opened: *mut c_void) -> HRESULT {
            // SAFETY: The caller passes an open handle, and does not use it afterwards.
            unsafe { drop(Box::from_raw(opened.cast::<Id>())) };
            OK
        }
    };
}

functions!(Network, HCN_E_NETWORK_NOT_FOUND: HcnEnumerateNetworks, HcnOpenNetwork,
    HcnModifyNetwork, HcnQueryNetworkProperties, HcnDeleteNetwork, HcnCloseNetwork);
functions!(Endpoint, HCN_E_ENDPOINT_NOT_FOUND: HcnEnumerateEndpoints, HcnOpenEndpoint,
    HcnModifyEndpoint, HcnQueryEndpointProperties, HcnDeleteEndpoint, HcnCloseEndpoint);
functions!(LoadBalancer, ERROR_NOT_FOUND: HcnEnumerateLoadBalancers,
    HcnOpenLoadBalancer, HcnModifyLoadBalancer, HcnQueryLoadBalancerProperties,
    HcnDeleteLoadBalancer, HcnCloseLoadBalancer);

#[unsafe(no_mangle)]
unsafe extern "system" fn HcnCreateNetwork(
    guid: *const GUID,
    settings: PCWSTR,
    opened: *mut *mut c_void,
    _: *mut PWSTR,
) -> HRESULT {
    // SAFETY: The caller passes valid pointers.
    unsafe { create::<Network>(std::ptr::null(), guid, settings, opened) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn HcnCreateEndpoint(
    network: *const c_void,
    guid: *const GUID,
    settings: PCWSTR,
    opened: *mut *mut c_void,
    _: *mut PWSTR,
) -> HRESULT {
    // SAFETY: The caller passes valid pointers and an open handle.
    unsafe { create::<Endpoint>(network, guid, settings, opened) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn HcnCreateLoadBalancer(
    guid: *const GUID,
    settings: PCWSTR,
    opened: *mut *mut c_void,
    _: *mut PWSTR,
) -> HRESULT {
    // SAFETY: The caller passes valid pointers.
    unsafe { create::<LoadBalancer>(std::ptr::null(), guid, settings, opened) }
}

#[unsafe(no_mangle)]
unsafe extern "system" fn HNSCall(
    method: PCWSTR,
    path: PCWSTR,
    _: PCWSTR,
    response: *mut PWSTR,
) -> HRESULT {
    // SAFETY: The caller passes valid pointers.
    unsafe {
        let (method, path) = (text(method), text(path));
        call(|hns| Ok(reply(response, &hns.request(&method, &path)?)))
    }
}

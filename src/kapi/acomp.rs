// SPDX-License-Identifier: GPL-2.0

//! Asynchronous compression: a transform of the kernel's crypto API.
//!
//! Requests on a transform are made by its [`AcompPool`](super::acomp_pool::AcompPool).

use super::noio::noio;
use crate::bindings;
use core::ptr::NonNull;
use kernel::error::from_err_ptr;
use kernel::prelude::*;

/// Which implementations of an algorithm to consider. Of those the one with the highest priority is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementations {
    /// All of them, hardware first as a rule.
    Any,
    /// Only those that compute on the calling CPU.
    Synchronous,
}

/// A compression transform, `struct crypto_acomp`.
///
/// # Invariants
///
/// The pointer came from `crypto_alloc_acomp`, and the transform belongs to this value.
pub struct Acomp(NonNull<bindings::crypto_acomp>);

// SAFETY: a transform may be used from any thread.
unsafe impl Send for Acomp {}
// SAFETY: as above; all state of an operation is in its request.
unsafe impl Sync for Acomp {}

impl Acomp {
    /// The transform of that name: of an algorithm (`deflate`) or of a driver (`deflate-iaa`).
    ///
    /// May load modules, which takes up to half a second if there is none. `ENOENT` if there is none.
    pub fn new(name: &CStr, which: Implementations) -> Result<Self> {
        let synchronous = which == Implementations::Synchronous;
        let name = name.as_char_ptr();
        // SAFETY: `name` is a string.
        let allocate = || unsafe { bindings::rvdo_crypto_alloc_acomp(name, synchronous) };
        let tfm = noio(allocate);
        // INVARIANT: not an error, so a transform, and it is ours.
        NonNull::new(from_err_ptr(tfm)?).map(Self).ok_or(ENOENT)
    }

    /// The name of the implementation, such as `deflate-generic`.
    pub fn driver_name(&self) -> &CStr {
        // SAFETY: by the invariant; the name is a string in the algorithm, which the transform keeps.
        unsafe { CStr::from_char_ptr(bindings::rvdo_acomp_driver_name(self.as_raw())) }
    }

    /// The name of the algorithm, such as `deflate`.
    pub fn algorithm_name(&self) -> &CStr {
        // SAFETY: as above.
        unsafe { CStr::from_char_ptr(bindings::rvdo_acomp_algorithm_name(self.as_raw())) }
    }

    /// Whether requests may complete in a callback.
    pub fn is_async(&self) -> bool {
        // SAFETY: by the invariant.
        unsafe { bindings::rvdo_acomp_is_async(self.as_raw()) }
    }

    /// A new request on this transform.
    pub(super) fn allocate_request(&self) -> Result<Request> {
        // SAFETY: by the invariant.
        let request = unsafe { bindings::rvdo_acomp_request_alloc(self.as_raw()) };
        // INVARIANT: not null, so a request, and it is ours.
        NonNull::new(request).map(Request).ok_or(ENOMEM)
    }

    fn as_raw(&self) -> *mut bindings::crypto_acomp {
        self.0.as_ptr()
    }
}

impl Drop for Acomp {
    fn drop(&mut self) {
        // SAFETY: by the invariant.
        unsafe { bindings::rvdo_crypto_free_acomp(self.as_raw()) }
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Compress,
    Decompress,
}

/// A request, `struct acomp_req`.
///
/// # Invariants
///
/// The pointer came from `acomp_request_alloc`, and the request belongs to this value.
pub(super) struct Request(NonNull<bindings::acomp_req>);

// SAFETY: a request may be used from any thread.
unsafe impl Send for Request {}
// SAFETY: as above; whoever has the request's slot to itself uses it.
unsafe impl Sync for Request {}

impl Request {
    /// Starts the operation. Task context: a software implementation does it here.
    ///
    /// With `-EINPROGRESS` or `-EBUSY` the driver has the request, and calls `done` when it is through (before that it may
    /// call it with `-EINPROGRESS`, which only says that the request left the backlog). Otherwise the operation is over.
    ///
    /// # Safety
    ///
    /// Both buffers are physically contiguous lowmem that belongs to the driver until the operation is over; the request
    /// is not in use; `done` may be called with `context` in any context.
    pub(super) unsafe fn start(
        &self,
        operation: Operation,
        source: &[u8],
        destination: NonNull<u8>,
        capacity: u32,
        done: unsafe extern "C" fn(*mut core::ffi::c_void, core::ffi::c_int),
        context: *mut core::ffi::c_void,
    ) -> core::ffi::c_int {
        let request = self.0.as_ptr();
        let Ok(length) = source.len().try_into() else {
            return EINVAL.to_errno();
        };
        // SAFETY: by the invariant and the contract.
        unsafe {
            bindings::rvdo_acomp_request_prepare(
                request,
                source.as_ptr(),
                length,
                destination.as_ptr(),
                capacity,
                Some(done),
                context,
            );
            match operation {
                Operation::Compress => bindings::rvdo_acomp_compress(request),
                Operation::Decompress => bindings::rvdo_acomp_decompress(request),
            }
        }
    }

    /// How many bytes the driver says it wrote. For a request that is over.
    pub(super) fn produced(&self) -> u32 {
        // SAFETY: by the invariant.
        unsafe { bindings::rvdo_acomp_produced(self.0.as_ptr()) }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: by the invariant. The pool drops it only when it is not in flight.
        unsafe { bindings::rvdo_acomp_request_free(self.0.as_ptr()) }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Making a target type known, and the functions that device mapper calls.

use core::mem::ManuallyDrop;
use core::ops::BitOr;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::{Opaque, ScopeGuard};

use super::args::Args;
use super::constructor::Constructor;
use super::device::DeviceTable;
use super::error_text::ErrorTexts;
use super::instance::{Callout, Instance};
use super::limits::QueueLimits;
use super::map::Incoming;
use super::result_text::ResultText;
use super::{Reply, StatusKind, Target};
use crate::bindings as b;
use crate::kapi::bio::OwnedBio;
use crate::kapi::noio::noio;

/// `DM_STATUS_NOFLUSH_FLAG`, which is in a header that is not installed (`drivers/md/dm.h`).
const STATUS_NOFLUSH: c_uint = 1;

/// What device mapper has to know about a target type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The target is the only one in its table.
    pub const SINGLETON: Self = Self(b::DM_TARGET_SINGLETON as u64);
    /// The target cannot be part of a read-only table.
    pub const ALWAYS_WRITABLE: Self = Self(b::DM_TARGET_ALWAYS_WRITEABLE as u64);
    /// A device with such a target never gets a table with targets of another type.
    pub const IMMUTABLE: Self = Self(b::DM_TARGET_IMMUTABLE as u64);
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A target type as device mapper knows it.
#[repr(C)]
struct TargetType<T: Target> {
    /// First, so that a pointer to it is one to the whole.
    raw: Opaque<b::target_type>,
    errors: ErrorTexts,
    /// Targets that exist. Each of them points here.
    targets: AtomicUsize,
    shared: Arc<T::Shared>,
}

/// Keeps a target type registered.
///
/// A registration belongs into the data of its module, which cannot go while there are targets.
/// Should it be dropped while there are, the memory they refer to is kept.
///
/// # Invariants
///
/// The target type is registered, and stays where it is.
pub struct Registration<T: Target>(ManuallyDrop<Pin<KBox<TargetType<T>>>>);

// SAFETY: registering and unregistering can be done by any thread, and nothing else is done with
// the inner value.
unsafe impl<T: Target> Send for Registration<T> {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl<T: Target> Sync for Registration<T> {}

impl<T: Target> Registration<T> {
    /// Registers `T` under `name`. Every target holds a reference to `module`, which has to be the
    /// one that `T` is part of.
    ///
    /// `shared` is what all targets of the type have in common; each is handed it when it is made.
    pub fn new(
        name: &'static CStr,
        module: &'static ThisModule,
        shared: Arc<T::Shared>,
    ) -> Result<Self> {
        let inner = KBox::pin(
            TargetType::<T> {
                raw: Opaque::new(Self::vtable(name, module)),
                errors: ErrorTexts::new(),
                targets: AtomicUsize::new(0),
                shared,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: the structure is complete, pinned, and unregistered before it is freed.
        to_result(unsafe { b::dm_register_target(inner.raw.get()) })?;
        // INVARIANT: just registered.
        Ok(Self(ManuallyDrop::new(inner)))
    }

    fn vtable(name: &'static CStr, module: &'static ThisModule) -> b::target_type {
        b::target_type {
            features: T::FEATURES.0,
            name: name.as_char_ptr(),
            module: module.as_ptr().cast(),
            version: T::VERSION,
            ctr: Some(ctr::<T>),
            dtr: Some(dtr::<T>),
            map: Some(map::<T>),
            status: T::HAS_STATUS.then_some(status::<T>),
            message: T::HAS_MESSAGE.then_some(message::<T>),
            presuspend: T::HAS_PRESUSPEND.then_some(presuspend::<T>),
            presuspend_undo: T::HAS_PRESUSPEND_UNDO.then_some(presuspend_undo::<T>),
            postsuspend: T::HAS_POSTSUSPEND.then_some(postsuspend::<T>),
            preresume: T::HAS_PRERESUME.then_some(preresume::<T>),
            resume: T::HAS_RESUME.then_some(resume::<T>),
            iterate_devices: T::HAS_ITERATE_DEVICES.then_some(iterate_devices::<T>),
            io_hints: T::HAS_IO_HINTS.then_some(io_hints::<T>),
            ..pin_init::zeroed()
        }
    }
}

impl<T: Target> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: registered by the type's invariants.
        unsafe { b::dm_unregister_target(self.0.raw.get()) };
        if self.0.targets.load(Acquire) == 0 {
            // SAFETY: this is the only place where it is dropped, and no target refers to it.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// What `ti->private` points to. The target goes first, then its devices.
struct Private<T: Target> {
    target: T,
    devices: DeviceTable,
}

/// Finds a target and its place in the table.
///
/// # Safety
///
/// `ti` is a target that `ctr::<T>` made and `dtr::<T>` has not been called for, and stays so for
/// `'a`.
unsafe fn borrow<'a, T: Target>(ti: *mut b::dm_target) -> (&'a T, Instance<'a>) {
    // SAFETY: `private` was set by `ctr` and is only shared until `dtr`.
    let private = unsafe { &*(*ti).private.cast::<Private<T>>() };
    let instance = Instance {
        // SAFETY: by the contract.
        ti: unsafe { NonNull::new_unchecked(ti) },
        devices: &private.devices,
    };
    (&private.target, instance)
}

// Device mapper calls the functions below with a target of the type they were registered for: `ctr`
// first, `dtr` last, the others only between a `ctr` that succeeded and `dtr`. That is what their
// safety comments refer to as "by the protocol".

unsafe extern "C" fn ctr<T: Target>(
    ti: *mut b::dm_target,
    argc: c_uint,
    argv: *mut *mut c_char,
) -> c_int {
    match construct::<T>(ti, argc, argv) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

fn construct<T: Target>(ti: *mut b::dm_target, argc: c_uint, argv: *mut *mut c_char) -> Result {
    let ti = NonNull::new(ti).ok_or(EINVAL)?;
    // SAFETY: by the protocol `type` is the `raw` of a registered `TargetType<T>`, which outlives
    // its targets.
    let target_type = unsafe { &*(*ti.as_ptr()).type_.cast::<TargetType<T>>() };
    target_type.targets.fetch_add(1, Relaxed);
    let uncount = ScopeGuard::new(|| {
        target_type.targets.fetch_sub(1, Release);
    });
    // SAFETY: the table is dropped at the end of this call or in `dtr`.
    let mut devices = unsafe { DeviceTable::new(ti) };
    // SAFETY: by the protocol; the words do not change during this call.
    let args = unsafe { Args::from_raw(argc, argv) };
    // SAFETY: by the protocol nobody else knows the target yet.
    let mut constructor = unsafe { Constructor::new(ti, args, &mut devices, &target_type.errors) };
    let target = T::new(&mut constructor, &target_type.shared)?;
    let private = KBox::new(Private { target, devices }, GFP_KERNEL)?;
    // SAFETY: the target is valid and ours until this call returns.
    unsafe { (*ti.as_ptr()).private = KBox::into_raw(private).cast() };
    uncount.dismiss();
    Ok(())
}

unsafe extern "C" fn dtr<T: Target>(ti: *mut b::dm_target) {
    // SAFETY: by the protocol `private` is what `ctr` stored, and nobody else uses it any more.
    drop(unsafe { KBox::from_raw((*ti).private.cast::<Private<T>>()) });
    // SAFETY: as in `construct`.
    let target_type = unsafe { &*(*ti).type_.cast::<TargetType<T>>() };
    target_type.targets.fetch_sub(1, Release);
}

unsafe extern "C" fn map<T: Target>(ti: *mut b::dm_target, bio: *mut b::bio) -> c_int {
    // SAFETY: by the protocol.
    let (target, instance) = unsafe { borrow::<T>(ti) };
    // SAFETY: by the protocol the bio is valid, and ours unless the answer says otherwise, which
    // `Mapping` sees to.
    let bio = unsafe { OwnedBio::from_raw(NonNull::new_unchecked(bio)) };
    target.map(&instance, Incoming::new(bio)).code()
}

unsafe extern "C" fn status<T: Target>(
    ti: *mut b::dm_target,
    kind: b::status_type_t,
    flags: c_uint,
    result: *mut c_char,
    maxlen: c_uint,
) {
    // SAFETY: by the protocol.
    let (target, instance) = unsafe { borrow::<T>(ti) };
    // SAFETY: by the protocol.
    let mut out = unsafe { ResultText::from_raw(result, maxlen) };
    let kind = match kind {
        b::status_type_t_STATUSTYPE_INFO => StatusKind::Info,
        b::status_type_t_STATUSTYPE_TABLE => StatusKind::Table,
        b::status_type_t_STATUSTYPE_IMA => StatusKind::Ima,
        _ => return,
    };
    let noflush = flags & STATUS_NOFLUSH != 0;
    target.status(&instance, kind, noflush, &mut out);
}

unsafe extern "C" fn message<T: Target>(
    ti: *mut b::dm_target,
    argc: c_uint,
    argv: *mut *mut c_char,
    result: *mut c_char,
    maxlen: c_uint,
) -> c_int {
    // SAFETY: by the protocol.
    let (target, instance) = unsafe { borrow::<T>(ti) };
    // SAFETY: by the protocol; the words do not change during this call.
    let args = unsafe { Args::from_raw(argc, argv) };
    // SAFETY: by the protocol.
    let mut out = unsafe { ResultText::from_raw(result, maxlen) };
    // Device mapper holds its SRCU meanwhile, and a suspend waits for that with bios held back: memory must not wait for them.
    match noio(|| target.message(&instance, args, &mut out)) {
        Ok(Reply::Done) => 0,
        // Tells device mapper that there is a text.
        Ok(Reply::Text) => 1,
        Err(error) => error.to_errno(),
    }
}

unsafe extern "C" fn presuspend<T: Target>(ti: *mut b::dm_target) {
    // SAFETY: by the protocol.
    let (target, instance) = unsafe { borrow::<T>(ti) };
    noio(|| target.presuspend(&instance));
}

unsafe extern "C" fn presuspend_undo<T: Target>(ti: *mut b::dm_target) {
    // SAFETY: by the protocol.
    let (target, instance) = unsafe { borrow::<T>(ti) };
    target.presuspend_undo(&instance);
}

unsafe extern "C" fn postsuspend<T: Target>(ti: *mut b::dm_target) {
    // SAFETY: by the protocol.
    let (target, instance) = unsafe { borrow::<T>(ti) };
    noio(|| target.postsuspend(&instance));
}

unsafe extern "C" fn preresume<T: Target>(ti: *mut b::dm_target) -> c_int {
    // SAFETY: by the protocol.
    let (target, instance) = unsafe { borrow::<T>(ti) };
    match noio(|| target.preresume(&instance)) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

unsafe extern "C" fn resume<T: Target>(ti: *mut b::dm_target) {
    // SAFETY: by the protocol.
    let (target, instance) = unsafe { borrow::<T>(ti) };
    target.resume(&instance);
}

unsafe extern "C" fn iterate_devices<T: Target>(
    ti: *mut b::dm_target,
    function: b::iterate_devices_callout_fn,
    data: *mut c_void,
) -> c_int {
    // SAFETY: by the protocol.
    let (target, instance) = unsafe { borrow::<T>(ti) };
    // INVARIANT: by the protocol `function` takes `data`.
    let callout = Callout {
        instance: &instance,
        function,
        data,
    };
    target.iterate_devices(&instance, &callout)
}

unsafe extern "C" fn io_hints<T: Target>(ti: *mut b::dm_target, limits: *mut b::queue_limits) {
    // SAFETY: by the protocol.
    let (target, instance) = unsafe { borrow::<T>(ti) };
    // SAFETY: by the protocol the limits are valid, and nobody else changes them during this call.
    let mut limits = QueueLimits::new(unsafe { &mut *limits });
    target.io_hints(&instance, &mut limits);
}

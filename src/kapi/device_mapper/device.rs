// SPDX-License-Identifier: GPL-2.0

//! The devices that a target has opened.
//!
//! A target owns a [`DeviceId`] for each of them. The devices themselves belong to its table, in a
//! [`DeviceTable`] that is dropped after the target, so a constructor that fails anywhere leaves
//! none of them open. To do I/O make a [`BlockDevice`](crate::kapi::block_device::BlockDevice),
//! which keeps the device open by itself.

use core::ptr::{self, NonNull};

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::types::Opaque;

use crate::bindings as b;

/// How a table is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(b::blk_mode_t);

impl Mode {
    /// To be read only.
    pub const READ: Self = Self(b::BLK_OPEN_READ);
    /// To be read and written.
    pub const READ_WRITE: Self = Self(b::BLK_OPEN_READ | b::BLK_OPEN_WRITE);

    pub(super) fn from_raw(mode: b::blk_mode_t) -> Self {
        Self(mode)
    }

    /// Whether writing is allowed.
    pub fn is_writable(self) -> bool {
        self.0 & b::BLK_OPEN_WRITE != 0
    }
}

/// A device that a target has opened.
#[repr(transparent)]
pub struct DmDevice(Opaque<b::dm_dev>);

impl DmDevice {
    /// # Safety
    ///
    /// `device` is valid for `'a`.
    unsafe fn from_raw<'a>(device: NonNull<b::dm_dev>) -> &'a Self {
        // SAFETY: valid by the contract, and `Self` is a transparent wrapper.
        unsafe { device.cast::<Self>().as_ref() }
    }

    pub(super) fn as_ptr(&self) -> *mut b::dm_dev {
        self.0.get()
    }

    /// The block device, and the open file that holds it.
    pub(in crate::kapi) fn open_file(&self) -> (NonNull<b::block_device>, NonNull<b::file>) {
        let device = self.0.get();
        // SAFETY: a `dm_dev` is valid while there is a reference to it, and its pointers are set
        // when it is opened.
        unsafe {
            (
                NonNull::new_unchecked((*device).bdev),
                NonNull::new_unchecked((*device).bdev_file),
            )
        }
    }

    pub(super) fn block_device(&self) -> *mut b::block_device {
        self.open_file().0.as_ptr()
    }

    /// The device number. No two open devices have the same.
    pub fn number(&self) -> u32 {
        // SAFETY: the target has the device open.
        unsafe { b::rvdo_bdev_number(self.block_device()) }
    }

    /// The device number as device mapper writes it into a table, `major:minor`.
    pub fn name(&self) -> &str {
        // SAFETY: the name is part of the `dm_dev`, NUL-terminated, and set once.
        let name = unsafe { CStr::from_char_ptr((&raw const (*self.0.get()).name).cast()) };
        name.to_str().unwrap_or("?")
    }
}

/// Names a device among those that one target has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceId(usize);

/// The devices that one target has opened, closed in reverse order when this is dropped.
///
/// # Invariants
///
/// `ti` is valid as long as this is, and has each of `devices` open once more for each time it is
/// listed.
pub(super) struct DeviceTable {
    ti: NonNull<b::dm_target>,
    devices: KVec<NonNull<b::dm_dev>>,
}

impl DeviceTable {
    /// # Safety
    ///
    /// `ti` stays valid until the table is dropped.
    pub(super) unsafe fn new(ti: NonNull<b::dm_target>) -> Self {
        // INVARIANT: by the contract; nothing is open yet.
        Self {
            ti,
            devices: KVec::new(),
        }
    }

    pub(super) fn open(&mut self, path: &CStr, mode: Mode) -> Result<DeviceId> {
        // First, so that nothing can fail once the device is open.
        self.devices.reserve(1, GFP_KERNEL)?;
        let mut device = ptr::null_mut();
        // SAFETY: the target is valid by the type's invariants.
        to_result(unsafe {
            b::dm_get_device(self.ti.as_ptr(), path.as_char_ptr(), mode.0, &mut device)
        })?;
        let device = NonNull::new(device).ok_or(ENODEV)?;
        let id = DeviceId(self.devices.len());
        // INVARIANT: the device was just opened.
        self.devices.push(device, GFP_KERNEL)?;
        Ok(id)
    }

    pub(super) fn get(&self, id: DeviceId) -> Result<&DmDevice> {
        let device = self.devices.get(id.0).ok_or(ENODEV)?;
        // SAFETY: open, hence valid, as long as it is listed.
        Ok(unsafe { DmDevice::from_raw(*device) })
    }
}

impl Drop for DeviceTable {
    fn drop(&mut self) {
        while let Some(device) = self.devices.pop() {
            // SAFETY: by the type's invariants the target is valid and has the device open.
            unsafe { b::dm_put_device(self.ti.as_ptr(), device.as_ptr()) };
        }
    }
}

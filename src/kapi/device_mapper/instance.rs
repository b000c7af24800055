// SPDX-License-Identifier: GPL-2.0

//! What a target can ask about its own place in a table.

use core::ptr::NonNull;

use kernel::prelude::*;

use super::device::{DeviceId, DeviceTable, DmDevice, Mode};
use crate::bindings as b;

/// Identifies a mapped device across reloads of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedDevice(usize);

/// One target in a table, as seen during one call.
///
/// # Invariants
///
/// `ti` is valid for `'a`.
pub struct Instance<'a> {
    pub(super) ti: NonNull<b::dm_target>,
    pub(super) devices: &'a DeviceTable,
}

impl Instance<'_> {
    fn raw(&self) -> *mut b::dm_target {
        self.ti.as_ptr()
    }

    fn table(&self) -> *mut b::dm_table {
        // SAFETY: the target is valid by the type's invariants, and its table is set once.
        unsafe { (*self.raw()).table }
    }

    /// The first sector of the mapped device that is this target's.
    pub fn begin(&self) -> u64 {
        // SAFETY: the target is valid by the type's invariants, and this is set once.
        unsafe { (*self.raw()).begin }
    }

    /// The length in sectors.
    #[expect(
        clippy::len_without_is_empty,
        reason = "device mapper accepts no target without sectors"
    )]
    pub fn len(&self) -> u64 {
        // SAFETY: as in `begin`.
        unsafe { (*self.raw()).len }
    }

    /// Turns a sector of the mapped device into one counted from the start of the target.
    pub fn offset(&self, sector: u64) -> u64 {
        sector.wrapping_sub(self.begin())
    }

    /// The kernel's name of the mapped device, such as `253:0`.
    pub fn device_name(&self) -> &str {
        // SAFETY: the table is valid as the target is; the name lives as long as the mapped device.
        let name = unsafe { CStr::from_char_ptr(b::dm_table_device_name(self.table())) };
        name.to_str().unwrap_or("?")
    }

    /// The mapped device that the table is for.
    pub fn mapped_device(&self) -> MappedDevice {
        // SAFETY: the table is valid as the target is.
        MappedDevice(unsafe { b::dm_table_get_md(self.table()) }.addr())
    }

    /// Whether the table was loaded for writing.
    pub fn mode(&self) -> Mode {
        // SAFETY: the table is valid as the target is.
        Mode::from_raw(unsafe { b::dm_table_get_mode(self.table()) })
    }

    /// Whether the suspend under way must not start I/O of its own (`dmsetup suspend --noflush`).
    pub fn is_suspending_noflush(&self) -> bool {
        // SAFETY: the target is valid by the type's invariants.
        unsafe { b::dm_noflush_suspending(self.raw()) != 0 }
    }

    /// A device the target has opened. Fails for the [`DeviceId`] of another target.
    pub fn device(&self, id: DeviceId) -> Result<&DmDevice> {
        self.devices.get(id)
    }

    /// Tells those who wait for events (`dmsetup wait`) that something has happened.
    pub fn trigger_event(&self) {
        // SAFETY: the table is valid as the target is. May sleep, as every call on a target but
        // `map` may.
        unsafe { b::dm_table_event(self.table()) };
    }
}

/// What [`Target::iterate_devices`](super::Target::iterate_devices) has to call.
///
/// # Invariants
///
/// `function` may be called with `data` and the target of `instance`.
pub struct Callout<'a> {
    pub(super) instance: &'a Instance<'a>,
    pub(super) function: b::iterate_devices_callout_fn,
    pub(super) data: *mut c_void,
}

impl Callout<'_> {
    /// Reports that the target uses `len` sectors of a device from `start` on. Anything but zero:
    /// return that.
    pub fn call(&self, id: DeviceId, start: u64, len: u64) -> c_int {
        let (Some(function), Ok(device)) = (self.function, self.instance.device(id)) else {
            return 0;
        };
        // SAFETY: by the type's invariants; the device is one of the target's.
        unsafe { function(self.instance.raw(), device.as_ptr(), start, len, self.data) }
    }
}

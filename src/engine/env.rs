// SPDX-License-Identifier: GPL-2.0

//! The outside world as the engine sees it.
//!
//! Everything that the engine cannot do by itself goes through one [`Env`]: reading and writing
//! the device, (de)compressing, taking requests and starting tasks. The engine is generic over it
//! and is compiled once for the kernel and once for the simulator; nothing here is dynamic.
//!
//! Buffers are passed by value and come back with the result. While the device or a codec works
//! on memory the engine has no way to free or to touch it, whatever happens to the waiting task.

use core::future::Future;
use core::ops::Range;

use crate::engine::format::StreamFormat;
use crate::engine::units::DeviceBlock;
use crate::rt::{AllocError, Page, PagePair};

/// What one volume runs on.
pub trait Env: Send + Sync + Sized + 'static {
    /// The block device underneath.
    type Device: Device;
    /// The compressors.
    type Codec: Codec;
    /// A request from above.
    type Request: UserRequest;
    /// Where requests come from.
    type Intake: Intake<Request = Self::Request>;

    /// The block device underneath.
    fn device(&self) -> &Self::Device;

    /// The compressors.
    fn codec(&self) -> &Self::Codec;

    /// Where requests come from.
    fn intake(&self) -> &Self::Intake;

    /// Starts a task. Its memory is allocated here, which is why tasks are started only while
    /// the volume loads, and is freed when the task ends.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), AllocError>;
}

/// Why the device could not do what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The medium or the way to it failed.
    Io,
    /// The device did not answer in time.
    Timeout,
    /// A thin device underneath ran out of space.
    NoSpace,
    /// The device is gone.
    Removed,
}

/// How a block is to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Everything written before, and completed, is durable before this block is written.
    pub preflush: bool,
    /// The block itself is durable when the write completes.
    pub fua: bool,
    /// The block is metadata, which others wait for.
    pub meta: bool,
}

impl WriteFlags {
    /// User data: nobody has been promised anything yet.
    pub const DATA: Self = Self {
        preflush: false,
        fua: false,
        meta: false,
    };
    /// Metadata whose order with other writes is kept by someone else.
    pub const META: Self = Self {
        preflush: false,
        fua: false,
        meta: true,
    };
    /// Metadata that must not become durable before what it refers to.
    pub const PREFLUSH: Self = Self {
        preflush: true,
        fua: false,
        meta: true,
    };
    /// Metadata that must be durable itself, after what it refers to.
    pub const PREFLUSH_FUA: Self = Self {
        preflush: true,
        fua: true,
        meta: true,
    };
}

/// What an I/O is for. Decides how it is counted and how urgent it is, never what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoClass {
    /// User data, compressed or not.
    Data,
    /// Reference counts, slab journals, the slab summary and the super block.
    Metadata,
    /// Pages of the block map.
    BlockMap,
    /// The recovery journal, for which writers wait.
    Journal,
    /// The deduplication index.
    Index,
}

/// A device of 4096-byte blocks.
pub trait Device: Send + Sync {
    /// The size of the device in blocks.
    fn blocks(&self) -> u64;

    /// Reads `block` into `page`. The contents of the page are undefined after an error.
    fn read(
        &self,
        block: DeviceBlock,
        page: Page,
        class: IoClass,
    ) -> impl Future<Output = (Page, Result<(), IoError>)> + Send;

    /// Writes `page` to `block`.
    fn write(
        &self,
        block: DeviceBlock,
        page: Page,
        class: IoClass,
        flags: WriteFlags,
    ) -> impl Future<Output = (Page, Result<(), IoError>)> + Send;

    /// Makes every write that has completed durable.
    fn flush(&self) -> impl Future<Output = Result<(), IoError>> + Send;
}

/// Why a codec has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// The result does not fit, or the driver reports what may mean that.
    Incompressible,
    /// The input is not what the compressor made.
    Corrupt,
    /// The driver is in trouble; the data is not to blame.
    Failed,
    /// There is nothing here that decompresses the format.
    Unknown,
}

/// What a compressor made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// What the bytes are.
    pub format: StreamFormat,
    /// How many there are, at most [`StreamFormat::fragment_bytes_max`].
    pub bytes: usize,
}

/// Compressors and decompressors. Which compressor is in use, and so the format of what is made, may change at any time; what
/// was made once can always be read.
pub trait Codec: Send + Sync {
    /// Compresses the 4096 bytes of `src` into `dst`, with the compressor in use.
    fn compress(
        &self,
        src: Page,
        dst: PagePair,
    ) -> impl Future<Output = (Page, PagePair, Result<Compressed, CodecError>)> + Send;

    /// Decompresses the bytes of `src` in `range`, which are of `format`, into `dst`. `Ok` only if exactly 4096 bytes came out.
    fn decompress(
        &self,
        format: StreamFormat,
        src: Page,
        range: Range<usize>,
        dst: Page,
    ) -> impl Future<Output = (Page, Page, Result<(), CodecError>)> + Send;
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fetch data.
    Read,
    /// Store data.
    Write,
    /// Forget data.
    Discard,
    /// Make what was acknowledged durable.
    Flush,
}

/// Why a request fails. Mapped to the block layer's status in one place, by the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The device failed, or what is stored cannot be read back.
    Io,
    /// No physical block is free.
    NoSpace,
    /// The volume is in read-only mode.
    ReadOnly,
    /// The request lies outside the volume.
    OutOfRange,
}

/// A request from above. It is completed exactly once, by [`UserRequest::complete`].
pub trait UserRequest: Send + 'static {
    /// What is asked for.
    fn operation(&self) -> Operation;

    /// The first 512-byte sector, relative to the start of the volume.
    fn sector(&self) -> u64;

    /// The length in bytes. A read or write stays inside one block; a discard may be any size.
    fn bytes(&self) -> usize;

    /// Whether the result must be durable before the request is completed.
    fn fua(&self) -> bool;

    /// Copies the data of a write out of the request. `dst` is [`UserRequest::bytes`] long.
    fn copy_from_user(&self, dst: &mut [u8]);

    /// Copies the data of a read into the request. `src` is [`UserRequest::bytes`] long.
    fn copy_to_user(&mut self, src: &[u8]);

    /// Ends the request.
    fn complete(self, result: Result<(), RequestError>);
}

/// The queue that requests arrive in.
pub trait Intake: Send + Sync {
    /// What arrives.
    type Request;

    /// Waits for the next request. `None` once the queue is closed and empty.
    fn next(&self) -> impl Future<Output = Option<Self::Request>> + Send;

    /// Closes the queue, which ends the tasks that serve it.
    fn close(&self);
}

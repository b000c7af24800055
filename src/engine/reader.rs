// SPDX-License-Identifier: GPL-2.0

//! Reading what a mapping points at.
//!
//! No state and no locks; waits for the device and for the codec. Whoever reads keeps the block from being reused: by the lock of
//! a logical block that is mapped to it, or by a pin.

use crate::engine::env::{Codec, CodecError, Env, IoClass, IoError};
use crate::engine::error::Error;
use crate::engine::format::compressed_block::CompressedBlock;
use crate::engine::format::{FormatError, Mapping, MappingState};
use crate::engine::store::Store;
use crate::engine::units::{FragmentSlot, Pbn};
use crate::rt::Page;

/// Reads the block that `mapping` points at into `data`, by way of `scratch` if it is compressed. The mapping has a block.
pub async fn read_mapping<E: Env>(
    store: &Store<E>,
    mapping: Mapping,
    scratch: Page,
    data: Page,
) -> (Page, Page, Result<(), Error>) {
    match mapping.state {
        MappingState::Compressed(slot) => {
            read_fragment(store, mapping.pbn, slot, scratch, data).await
        }
        MappingState::Unmapped | MappingState::Uncompressed => {
            let (data, result) = store.read(mapping.pbn, data, IoClass::Data).await;
            (data, scratch, result.map_err(Error::from))
        }
    }
}

/// Reads the compressed block `pbn` into `scratch` and decompresses fragment `slot` of it into `data`. Returns `data`, `scratch`
/// and how it went.
pub async fn read_fragment<E: Env>(
    store: &Store<E>,
    pbn: Pbn,
    slot: FragmentSlot,
    scratch: Page,
    data: Page,
) -> (Page, Page, Result<(), Error>) {
    let (scratch, result) = store.read(pbn, scratch, IoClass::Data).await;
    if let Err(error) = result {
        return (data, scratch, Err(error.into()));
    }
    let fragment = CompressedBlock::parse(&scratch)
        .and_then(|block| Ok((block.format(), block.fragment(slot)?)));
    let (format, range) = match fragment {
        Ok(fragment) => fragment,
        Err(error) => return (data, scratch, Err(error.into())),
    };

    let counters = &store.statistics().codec;
    counters.decompress_calls.increment();
    counters.outstanding.increment();
    let (scratch, data, result) = store.codec().decompress(format, scratch, range, data).await;
    counters.outstanding.decrement();
    let result = result.map_err(|error| {
        counters.decompress_errors.increment();
        match error {
            CodecError::Failed => Error::Io(IoError::Io),
            CodecError::Unknown => Error::Unsupported(
                "a compressed block is of a format that no driver here can decompress",
            ),
            CodecError::Corrupt | CodecError::Incompressible => {
                Error::Format(FormatError::BadFragment)
            }
        }
    });
    (data, scratch, result)
}

// SPDX-License-Identifier: GPL-2.0

//! A hash table whose capacity is fixed when it is made.
//!
//! The I/O path must not allocate, so every table of the engine (LBN locks, hash locks, cached pages, pins) is sized at
//! load for the largest number of entries that the requests in flight can need. Entries are chained through indices into one
//! array; freed entries are reused. The table has no lock of its own: whoever owns it guards it.

use crate::rt::{AllocError, Vec};

/// No entry: the end of a chain.
const NIL: u32 = u32::MAX;

/// What a table can be keyed by.
pub trait Key: Copy + Eq {
    /// A 64-bit number that is equal for equal keys. It need not be well mixed.
    fn as_bits(&self) -> u64;
}

impl Key for u64 {
    fn as_bits(&self) -> u64 {
        *self
    }
}

/// The table has as many entries as it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

struct Entry<K, V> {
    next: u32,
    content: Option<(K, V)>,
}

/// A chained hash table of fixed capacity.
///
/// # Invariants
///
/// Every entry index is in exactly one chain: that of its key's bucket when it has content, the free chain otherwise.
pub struct FixedTable<K, V> {
    buckets: Vec<u32>,
    entries: Vec<Entry<K, V>>,
    free: u32,
    len: usize,
    shift: u32,
}

impl<K: Key, V> FixedTable<K, V> {
    /// Makes a table for `capacity` entries.
    pub fn with_capacity(capacity: usize) -> Result<Self, AllocError> {
        let capacity_u32 = u32::try_from(capacity).map_err(|_| AllocError)?;
        let bucket_count = capacity
            .max(2)
            .checked_next_power_of_two()
            .ok_or(AllocError)?;
        let last = capacity_u32.wrapping_sub(1);
        Ok(Self {
            buckets: Vec::from_fn(bucket_count, |_| Ok::<_, AllocError>(NIL))?,
            entries: Vec::from_fn(capacity, |index| {
                let index = u32::try_from(index).map_err(|_| AllocError)?;
                let next = if index == last {
                    NIL
                } else {
                    index.wrapping_add(1)
                };
                Ok::<_, AllocError>(Entry {
                    next,
                    content: None,
                })
            })?,
            free: if capacity == 0 { NIL } else { 0 },
            len: 0,
            shift: 64_u32.wrapping_sub(bucket_count.trailing_zeros()),
        })
    }

    /// The number of entries in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no further key can be inserted.
    pub fn is_full(&self) -> bool {
        self.free == NIL
    }

    /// Looks a key up.
    pub fn get(&self, key: &K) -> Option<&V> {
        let (_, index) = self.find(key)?;
        self.entry(index)?.content.as_ref().map(|(_, value)| value)
    }

    /// Looks a key up, for changing its value.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (_, index) = self.find(key)?;
        self.entry_mut(index)?
            .content
            .as_mut()
            .map(|(_, value)| value)
    }

    /// Whether the key is there.
    pub fn contains(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// Sets the value of a key and returns the one it had.
    ///
    /// # Errors
    ///
    /// [`Full`] if the key is new and every entry is in use; the table is as it was.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Full> {
        if let Some(old) = self.get_mut(&key) {
            return Ok(Some(core::mem::replace(old, value)));
        }
        let index = self.free;
        let bucket = self.bucket_of(&key);
        let head = self.buckets.get(bucket).copied().ok_or(Full)?;
        let entry = self.entry_mut(index).ok_or(Full)?;
        let next_free = entry.next;
        entry.next = head;
        entry.content = Some((key, value));
        if let Some(slot) = self.buckets.get_mut(bucket) {
            *slot = index;
        }
        self.free = next_free;
        self.len = self.len.saturating_add(1);
        Ok(None)
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (previous, index) = self.find(key)?;
        let free = self.free;
        let entry = self.entry_mut(index)?;
        let next = entry.next;
        let content = entry.content.take();
        entry.next = free;
        self.free = index;
        match previous {
            Some(previous) => self.entry_mut(previous)?.next = next,
            None => {
                let bucket = self.bucket_of(key);
                *self.buckets.get_mut(bucket)? = next;
            }
        }
        self.len = self.len.saturating_sub(1);
        content.map(|(_, value)| value)
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries
            .iter()
            .filter_map(|entry| entry.content.as_ref().map(|(key, value)| (key, value)))
    }

    fn bucket_of(&self, key: &K) -> usize {
        // Fibonacci hashing: the high bits of the product are the well mixed ones.
        let mixed = key.as_bits().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        usize::try_from(mixed.checked_shr(self.shift).unwrap_or(0)).unwrap_or(0)
    }

    /// The entry that holds the key, with its predecessor in the chain.
    fn find(&self, key: &K) -> Option<(Option<u32>, u32)> {
        let mut previous = None;
        let mut index = *self.buckets.get(self.bucket_of(key))?;
        while let Some(entry) = self.entry(index) {
            if matches!(&entry.content, Some((found, _)) if found == key) {
                return Some((previous, index));
            }
            previous = Some(index);
            index = entry.next;
        }
        None
    }

    fn entry(&self, index: u32) -> Option<&Entry<K, V>> {
        self.entries.get(usize::try_from(index).ok()?)
    }

    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry<K, V>> {
        self.entries.get_mut(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_a_map_of_bounded_size() {
        let mut table = FixedTable::with_capacity(37).unwrap();
        let mut model = std::collections::HashMap::new();
        let mut random = 12345_u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let key = (random >> 33) % 64;
            match (random >> 60) % 3 {
                0 | 1 => {
                    let expected = if model.contains_key(&key) || model.len() < 37 {
                        Ok(model.insert(key, random))
                    } else {
                        Err(Full)
                    };
                    assert_eq!(table.insert(key, random), expected);
                }
                _ => assert_eq!(table.remove(&key), model.remove(&key)),
            }
            assert_eq!(table.get(&key), model.get(&key));
            assert_eq!(table.len(), model.len());
        }
        assert_eq!(table.iter().count(), model.len());
    }

    #[test]
    fn an_empty_table_is_full() {
        let mut table = FixedTable::<u64, ()>::with_capacity(0).unwrap();
        assert_eq!(table.insert(1, ()), Err(Full));
        assert_eq!(table.remove(&1), None);
    }
}

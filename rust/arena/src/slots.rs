//! Slots: the partitions that have blocks.

use std::collections::HashMap;

use crate::layout::{
    HEADER_SLOTS, NAME_BYTES_MAX, SLOT_BYTES, SLOT_CRC, SLOT_GENERATION, SLOT_INDEX, SLOT_NAME,
    SLOT_NAME_LEN, SLOT_PRODUCERS, SLOT_TOPIC_ID, SLOTS, SLOTS_A_GROUP, guarded, slot_at,
    unguarded,
};
use crate::memory::Memory;

/// A partition's place, and the generation in which its blocks count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The partition that a slot belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionName {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// Topic id, zero = none.
    pub topic_id: [u8; 16],
}

/// Slots by partition. Under the arena's lock.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    by_name: HashMap<PartitionName, u32>,
    free: Vec<u32>,
    /// Slots with memory.
    populated: u32,
}

impl Slots {
    /// Checks by their numbers that each slot is used or free.
    ///
    /// # Errors
    /// The numbers, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        let (used, free) = (self.by_name.len(), self.free.len());
        if used + free != self.populated as usize {
            let ready = self.populated;
            return Err(format!(
                "of {ready} slots {used} are in use and {free} free"
            ));
        }
        Ok(())
    }

    /// Checks each slot.
    ///
    /// # Errors
    /// The first one that has several owners, in a sentence.
    pub fn check_names(&self) -> Result<(), String> {
        let mut is_taken = vec![false; self.populated as usize];
        for &slot in self.by_name.values().chain(&self.free) {
            match is_taken.get_mut(slot as usize) {
                Some(is_taken) if !*is_taken => *is_taken = true,
                Some(_) => return Err(format!("slot {slot} has several owners")),
                None => return Err(format!("slot {slot} is not ready")),
            }
        }
        self.check()
    }

    /// Bytes of the slots that have memory.
    pub fn populated_bytes(&self) -> usize {
        self.populated as usize * SLOT_BYTES
    }

    /// Takes over the slots found in use; all others are free.
    pub fn found(names: HashMap<PartitionName, u32>, populated: u32) -> Slots {
        let used: std::collections::HashSet<u32> = names.values().copied().collect();
        let free = (0..populated).rev().filter(|slot| !used.contains(slot));
        Slots {
            free: free.collect(),
            by_name: names,
            populated,
        }
    }

    /// The slots in use.
    pub fn all(&self, memory: &Memory) -> Vec<(PartitionName, Slot)> {
        let named = self.by_name.iter();
        named
            .map(|(name, index)| (name.clone(), slot(memory, *index)))
            .collect()
    }

    /// The number of slots in use.
    pub fn used(&self) -> usize {
        self.by_name.len()
    }

    /// The number of free slots that have memory.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The first slot of the next group to be populated; `None` after the last one.
    pub fn next_group(&self) -> Option<u32> {
        ((self.populated as usize) < SLOTS).then_some(self.populated)
    }

    /// The group that begins with `first` has memory.
    pub fn add_group(&mut self, memory: &Memory, first: u32) {
        if self.next_group() != Some(first) {
            return;
        }
        let next = first + SLOTS_A_GROUP as u32;
        self.free.extend((first..next).rev());
        self.populated = next;
        memory.store_wide(HEADER_SLOTS, guarded(next));
    }

    /// The slot of a partition that has one.
    pub fn known(&self, memory: &Memory, name: &PartitionName) -> Option<Slot> {
        let index = *self.by_name.get(name)?;
        Some(slot(memory, index))
    }

    /// The slot of a partition, a new one if it has none. `None` when no slot is free, or the name
    /// is too long.
    pub fn of(&mut self, memory: &Memory, name: &PartitionName) -> Option<Slot> {
        if let Some(slot) = self.known(memory, name) {
            return Some(slot);
        }
        if name.topic.len() > NAME_BYTES_MAX {
            return None;
        }
        let index = self.free.pop()?;
        store(memory, index, name);
        self.by_name.insert(name.clone(), index);
        Some(slot(memory, index))
    }

    /// Frees the slot of a partition that is gone; its blocks are dead.
    pub fn release(&mut self, memory: &Memory, slot: Slot) {
        if !is_current(memory, slot) {
            return;
        }
        match load(memory, slot.index) {
            Ok(Some(name)) => {
                self.by_name.remove(&name);
            }
            // Without the topic name, the entry is searched for.
            _ => self.by_name.retain(|_, index| *index != slot.index),
        }
        advance(memory, slot);
        memory.store(slot_at(slot.index), 0);
        self.free.push(slot.index);
    }
}

/// Whether blocks of the slot's generation still count.
pub(crate) fn is_current(memory: &Memory, slot: Slot) -> bool {
    memory.load(slot_at(slot.index) + SLOT_GENERATION) == slot.generation
}

/// Kills all blocks of the partition at once. Returns the new generation's slot.
pub(crate) fn advance(memory: &Memory, slot: Slot) -> Slot {
    let generation = slot.generation.wrapping_add(1);
    memory.store(slot_at(slot.index) + SLOT_GENERATION, generation);
    Slot { generation, ..slot }
}

pub(crate) fn slot(memory: &Memory, index: u32) -> Slot {
    Slot {
        index,
        generation: memory.load(slot_at(index) + SLOT_GENERATION),
    }
}

fn store(memory: &Memory, index: u32, name: &PartitionName) {
    let at = slot_at(index);
    memory.store(at + SLOT_INDEX, name.partition as u32);
    memory.store(at + SLOT_NAME_LEN, name.topic.len() as u32);
    // Not known, which counts as "yes".
    memory.store_wide(at + SLOT_PRODUCERS, 0);
    memory.store_bytes(at + SLOT_TOPIC_ID, &name.topic_id);
    memory.store_bytes(at + SLOT_NAME, &[0; SLOT_CRC - SLOT_NAME]);
    memory.store_bytes(at + SLOT_NAME, name.topic.as_bytes());
    memory.store(at + SLOT_CRC, crc(memory, at));
    memory.store(at, 1);
}

/// See [`crate::Arena::set_producers`].
pub(crate) fn set_producers(memory: &Memory, slot: Slot, any: bool) {
    if is_current(memory, slot) {
        let at = slot_at(slot.index) + SLOT_PRODUCERS;
        memory.store_wide(at, guarded(u32::from(any)));
    }
}

/// See [`crate::Arena::has_no_producers`].
pub(crate) fn has_no_producers(memory: &Memory, slot: Slot) -> bool {
    let at = slot_at(slot.index) + SLOT_PRODUCERS;
    unguarded(memory.load_wide(at)) == Some(0)
}

fn crc(memory: &Memory, at: usize) -> u32 {
    let fixed = memory.load_bytes(at + SLOT_INDEX, SLOT_CRC - SLOT_INDEX);
    crc_fast::crc32_iscsi(&fixed)
}

/// `None` for a free slot, an error for one that cannot be right.
pub(crate) fn load(memory: &Memory, index: u32) -> Result<Option<PartitionName>, String> {
    let at = slot_at(index);
    match memory.load(at) {
        0 => return Ok(None),
        1 => {}
        state => return Err(format!("slot {index} has state {state}")),
    }
    if memory.load(at + SLOT_CRC) != crc(memory, at) {
        return Err(format!("slot {index} has a wrong checksum"));
    }
    let len = memory.load(at + SLOT_NAME_LEN) as usize;
    if len > NAME_BYTES_MAX {
        return Err(format!("slot {index} has a name of {len} bytes"));
    }
    let mut topic_id = [0; 16];
    topic_id.copy_from_slice(&memory.load_bytes(at + SLOT_TOPIC_ID, 16));
    let topic = String::from_utf8(memory.load_bytes(at + SLOT_NAME, len));
    Ok(Some(PartitionName {
        topic: topic.map_err(|_| format!("slot {index} has a name that is not UTF-8"))?,
        partition: memory.load(at + SLOT_INDEX) as i32,
        topic_id,
    }))
}

#[cfg(test)]
impl Slots {
    /// Breaks an invariant: a slot is neither used nor free.
    pub fn lose(&mut self) {
        self.free.pop();
    }

    /// Breaks an invariant: a slot has two owners.
    pub fn give_twice(&mut self) {
        let taken = self.by_name.values().next().copied();
        if let (Some(free), Some(taken)) = (self.free.last_mut(), taken) {
            *free = taken;
        }
    }
}

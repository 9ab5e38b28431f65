//! The connections of one network thread, by token.

use crate::net::connection::Connection;
use pyrklog_base::ids::Token;

/// Bits of a token that name the slot; then the thread, then the generation.
const SLOT_BITS: u32 = 24;
const THREAD_BITS: u32 = 8;

/// A token names thread, slot and generation, so no two connections of the process share one within
/// 2^32 uses of a slot.
#[derive(Debug)]
pub struct Connections {
    thread: u64,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    is_used: bool,
    connection: Option<Box<Connection>>,
}

impl Connections {
    /// For network thread `thread` of at most 256.
    pub fn new(thread: usize) -> Connections {
        Connections {
            thread: thread as u64 & ((1 << THREAD_BITS) - 1),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds the connection that `make` gives for its token.
    pub fn insert(&mut self, make: impl FnOnce(Token) -> Connection) -> &mut Connection {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        slot.is_used = true;
        let token = u64::from(slot.generation) << (SLOT_BITS + THREAD_BITS)
            | self.thread << SLOT_BITS
            | index as u64;
        slot.connection.insert(Box::new(make(token)))
    }

    /// All connections that are not taken out.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        let slots = self.slots.iter_mut();
        slots.filter_map(|slot| slot.connection.as_deref_mut())
    }

    fn slot(&mut self, token: Token) -> Option<&mut Slot> {
        let index = (token & ((1 << SLOT_BITS) - 1)) as usize;
        let generation = (token >> (SLOT_BITS + THREAD_BITS)) as u32;
        self.slots
            .get_mut(index)
            .filter(|slot| slot.is_used && slot.generation == generation)
    }

    /// A connection, unless it is gone or taken out.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut Connection> {
        self.slot(token)?.connection.as_deref_mut()
    }

    /// Takes a connection out to work on it; [`Connections::put_back`] or [`Connections::forget`]
    /// must follow.
    pub fn take(&mut self, token: Token) -> Option<Box<Connection>> {
        self.slot(token)?.connection.take()
    }

    /// Puts back what [`Connections::take`] gave.
    pub fn put_back(&mut self, connection: Box<Connection>) {
        if let Some(slot) = self.slot(connection.client.context.token) {
            slot.connection = Some(connection);
        }
    }

    /// Frees the place of a connection that was taken out.
    pub fn forget(&mut self, token: Token) {
        let index = (token & ((1 << SLOT_BITS) - 1)) as usize;
        if let Some(slot) = self.slot(token) {
            slot.is_used = false;
            slot.connection = None;
            self.free.push(index);
        }
    }

    pub fn tokens(&self) -> Vec<Token> {
        self.slots
            .iter()
            .filter_map(|slot| slot.connection.as_ref())
            .map(|connection| connection.client.context.token)
            .collect()
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

//! Typed `u32` handles and the arenas they index.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A typed index into an [`Arena`].
pub trait Handle: Copy + Eq + fmt::Debug {
    /// The handle of the `index`-th item.
    fn from_index(index: usize) -> Self;
    /// The position of the item in its arena.
    fn index(self) -> usize;
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $crate::handle::Handle for $name {
            fn from_index(index: usize) -> Self {
                match u32::try_from(index) {
                    Ok(index) => Self(index),
                    Err(_) => unreachable!("a graph holds fewer than 2^32 items: its text would not fit in memory"),
                }
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

handle!(
    /// A value: a graph input, a weight or an output of a node.
    ValueId, "v"
);
handle!(
    /// A node: one operator applied to values.
    NodeId, "n"
);

/// A growing list addressed by its own handle type. Items are never removed singly;
/// `Graph::compact` rebuilds the arenas without what is dead.
#[derive(Clone)]
pub struct Arena<H, T> {
    items: Vec<T>,
    handle: PhantomData<H>,
}

impl<H: Handle, T> Arena<H, T> {
    /// Adds an item and returns its handle.
    pub fn push(&mut self, item: T) -> H {
        let handle = H::from_index(self.items.len());
        self.items.push(item);
        handle
    }

    /// An arena with room for so many items.
    #[must_use]
    pub fn with_capacity(items: usize) -> Self {
        Self { items: Vec::with_capacity(items), handle: PhantomData }
    }

    /// The items, in order.
    #[must_use]
    pub fn into_items(self) -> Vec<T> {
        self.items
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The item, or `None` for a handle of another arena.
    #[must_use]
    pub fn get(&self, handle: H) -> Option<&T> {
        self.items.get(handle.index())
    }

    /// All items with their handles, in order.
    pub fn iter(&self) -> impl Iterator<Item = (H, &T)> {
        self.items.iter().enumerate().map(|(i, item)| (H::from_index(i), item))
    }
}

impl<H, T> Default for Arena<H, T> {
    fn default() -> Self {
        Self { items: Vec::new(), handle: PhantomData }
    }
}

impl<H: Handle, T> Index<H> for Arena<H, T> {
    type Output = T;
    fn index(&self, handle: H) -> &T {
        &self.items[handle.index()]
    }
}

impl<H: Handle, T> IndexMut<H> for Arena<H, T> {
    fn index_mut(&mut self, handle: H) -> &mut T {
        &mut self.items[handle.index()]
    }
}

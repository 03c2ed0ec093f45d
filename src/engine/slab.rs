//! Numbered places for groups and lanes: small ids instead of names in every structure, freed places used again.

#[derive(Debug)]
pub(super) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, item: T) -> u32 {
        if let Some(id) = self.free.pop()
            && let Some(place) = self.items.get_mut(id as usize)
        {
            *place = Some(item);
            return id;
        }
        self.items.push(Some(item));
        (self.items.len() - 1) as u32
    }

    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.items.get(id as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.items.get_mut(id as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let item = self.items.get_mut(id as usize)?.take()?;
        self.free.push(id);
        Some(item)
    }

    /// Places, free ones with them.
    pub(super) fn places(&self) -> usize {
        self.items.len()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// In the order of ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items.iter().enumerate().filter_map(|(id, item)| item.as_ref().map(|item| (id as u32, item)))
    }
}

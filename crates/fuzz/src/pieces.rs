//! Bytes cut into pieces, as networks do it: the cuts come from the input itself.

/// Splits `bytes` by a small generator seeded with `seed`: pieces of 1 to 16 bytes, mostly.
pub fn of(bytes: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let mut state = u32::from(seed).wrapping_mul(0x9e37_79b9) | 1;
    let mut left = bytes;
    std::iter::from_fn(move || {
        // Xorshift (Marsaglia 2003): enough to cut at places that nobody chose.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let size = match seed {
            0 => 1,
            _ => (state >> 16) as usize % 16 + 1,
        };
        let (piece, rest) = left.split_at(size.min(left.len()));
        left = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

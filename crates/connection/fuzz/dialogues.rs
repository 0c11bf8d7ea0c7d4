//! The dialogues of a correct server, and damage to them.

use super::super::mutate::{Random, mutate};

pub(crate) const OK: &[u8] = b"\0\0\0\x02\0\0\0";
const RSA_KEY: &[u8] = b"\x01@RSA_KEY@";

pub(crate) fn greeting(plugin: &[u8], is_new: bool) -> Vec<u8> {
    let capabilities = if is_new { b"\xff\xff\x2d\x02\0\xff\x81\x15" } else { b"\xff\xff\x2d\x02\0\xff\x80\x15" };
    let parts: [&[u8]; 6] =
        [b"\x0a11.8.3-MariaDB\0\x01\0\0\0abcdefgh\0", capabilities, &[0; 10], b"ijklmnopqrst\0", plugin, b"\0"];
    parts.concat()
}

/// A login with one of the plugins, each packet with its number.
pub(crate) fn login_packets(is_local: bool, random: &mut Random) -> Vec<(u8, Vec<u8>)> {
    let switch = |plugin: &[u8], challenge: &[u8]| (2, [b"\xfe", plugin, b"\0", challenge].concat());
    let (key, ok, full) =
        (|number| (number, RSA_KEY.to_vec()), |number| (number, OK.to_vec()), (2, b"\x01\x04".to_vec()));
    let long = [7; 32];
    let scramble = b"abcdefghijklmnopqrst\0";
    let mut first = b"mysql_native_password".as_slice();
    let mut packets = match random.below(10) {
        0 => vec![ok(2)],
        1 => vec![switch(b"mysql_native_password", scramble), ok(4)],
        2 => vec![switch(b"client_ed25519", &long), ok(4)],
        3 => vec![switch(b"parsec", &long), (4, [b"\x01P\x00".as_slice(), &[9; 18]].concat()), ok(6)],
        4 => vec![switch(b"mysql_clear_password", b""), ok(4)],
        5 => vec![(2, b"\xfe".to_vec())],
        6 if is_local => vec![switch(b"sha256_password", scramble), key(4), ok(6)],
        6 => vec![switch(b"sha256_password", scramble), key(4), ok(6)],
        7 => vec![(2, b"\xff\x15\x04#28000Access denied".to_vec())],
        _ => {
            first = b"caching_sha2_password";
            match (random.below(3), is_local) {
                (0, _) => vec![(2, b"\x01\x03".to_vec()), ok(3)],
                (_, true) => vec![full, ok(4)],
                (_, false) => vec![full, key(4), ok(6)],
            }
        }
    };
    packets.insert(0, (0, greeting(first, true)));
    packets
}

const COLUMN: &[u8] = b"\x03def\x00\x00\x00\x01a\x00\x0c\x3f\x00\x01\x00\x00\x00\x08\x81\x00\x00\x00\x00";

/// The answer to one packet of statements.
pub(crate) fn answer_packets(is_new: bool, random: &mut Random) -> Vec<(u8, Vec<u8>)> {
    let end = |status: u8| match is_new {
        true => [b"\xfe\0\0".as_slice(), &[status, 0, 0, 0]].concat(),
        false => [b"\xfe\0\0".as_slice(), &[status, 0]].concat(),
    };
    let rows = |status: u8| {
        let mut packets = vec![b"\x02".to_vec(), COLUMN.to_vec(), COLUMN.to_vec()];
        packets.extend((!is_new).then(|| end(2)));
        packets.extend([b"\x02xy\xfb".to_vec(), b"\xfb\xfc\x03\0abc".to_vec(), end(status)]);
        packets
    };
    let payloads = match random.below(8) {
        0 => vec![OK.to_vec()],
        1 => vec![b"\0\x03\0\x0a\0\0\0Rows matched: 3".to_vec(), OK.to_vec()],
        2 => [rows(0x0a), vec![OK.to_vec()]].concat(),
        3 => [rows(0x0a), rows(2)].concat(),
        4 => vec![b"\xff\x26\x04#23000Duplicate".to_vec()],
        5 => vec![b"\xfb/etc/passwd".to_vec(), OK.to_vec()],
        6 => vec![b"\0\0\0\0\0\x04\0\0\0event".to_vec(), b"\xfe\0\0\x02\0".to_vec()],
        _ => rows(2),
    };
    payloads.into_iter().enumerate().map(|(number, payload)| (number as u8 + 1, payload)).collect()
}

/// Far more than the client may keep in memory: rows, results, columns, or one packet.
pub(crate) fn endless(random: &mut Random) -> Vec<u8> {
    const TOTAL_BYTES: usize = 2 << 20;
    let mut bytes = Vec::new();
    let (first, again): (&[&[u8]], &[u8]) = match random.below(4) {
        0 => (&[b"\x01", COLUMN], b"\xfb"),
        1 => (&[], b"\0\0\0\x0a\0\0\0"),
        2 => (&[b"\xfc\0\x10"], COLUMN),
        _ => {
            bytes = [0xff, 0xff, 0xff, 1].to_vec();
            bytes.resize(TOTAL_BYTES, 1);
            return bytes;
        }
    };
    let mut number = 1_u8;
    for payload in first.iter().copied().chain(std::iter::repeat(again)) {
        bytes.extend(framed(payload, number));
        number = number.wrapping_add(1);
        if bytes.len() > TOTAL_BYTES {
            return bytes;
        }
    }
    bytes
}

pub(crate) fn framed(payload: &[u8], number: u8) -> Vec<u8> {
    let [a, b, c, ..] = (payload.len() as u32).to_le_bytes();
    [&[a, b, c, number], payload].concat()
}

/// The packets as bytes, with damage: within payloads, to their order, or to the bytes as a whole.
pub(crate) fn damaged(mut packets: Vec<(u8, Vec<u8>)>, random: &mut Random) -> Vec<u8> {
    for (_, payload) in &mut packets {
        if let Some(at) = payload.windows(9).position(|window| window == b"@RSA_KEY@") {
            payload.splice(at..at + 9, PUBLIC_KEY.bytes());
        }
    }
    for _ in 0..random.below(4) {
        let at = random.below(packets.len());
        match random.below(10) {
            0 => drop(packets.remove(at)),
            1 => packets.insert(at, packets[at].clone()),
            2 => packets[at].0 = random.next() as u8,
            3 => {
                let other = random.below(packets.len());
                packets.swap(at, other);
            }
            _ => mutate(&mut packets[at].1, random),
        }
        if packets.is_empty() {
            break;
        }
    }
    let mut bytes: Vec<u8> = packets.iter().flat_map(|(number, payload)| framed(payload, *number)).collect();
    if random.below(8) == 0 {
        mutate(&mut bytes, random);
    }
    bytes
}

const PUBLIC_KEY: &str = include_str!("public_key.pem");

//! What is stored of bytes: compressed (zstd), then encrypted (age) if there is a recipient. `age -d -i key file | zstd -d` reads it, too.

use std::io::{Read, Write};
use std::path::Path;
use std::str::FromStr;

use age::secrecy::ExposeSecret;
use age::x25519;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Fast, and about as small as what slower levels make of rows and binlogs.
const COMPRESSION_LEVEL: i32 = 3;

/// The public keys of those who may restore. None: nothing is encrypted.
#[derive(Debug, Clone, Default)]
pub struct Recipients(Vec<x25519::Recipient>);

/// The secret keys of one who restores.
#[derive(Clone, Default)]
pub struct Identities(Vec<x25519::Identity>);

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} identities", self.0.len())
    }
}

impl Recipients {
    /// Reads public keys: each text is one (`age1…`), or a file that holds some.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::File`].
    pub fn read(given: &[String]) -> Result<Recipients> {
        let mut keys = Vec::new();
        for text in given {
            if text.starts_with("age1") {
                keys.push(recipient(text, text)?);
                continue;
            }
            let content = std::fs::read_to_string(text).map_err(Error::file(text))?;
            for line in lines(&content) {
                keys.push(recipient(line, text)?);
            }
        }
        Ok(Recipients(keys))
    }

    /// True if nothing is encrypted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn recipient(text: &str, place: &str) -> Result<x25519::Recipient> {
    x25519::Recipient::from_str(text).map_err(|why| Error::Key {
        key: place.to_owned(),
        why: format!("that is no public key of age ({why}); spate backup key makes a pair"),
    })
}

fn lines(content: &str) -> impl Iterator<Item = &str> {
    content.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

impl Identities {
    /// Reads a file of secret keys, as `spate backup key` and `age-keygen` write them.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::File`].
    pub fn read(path: &Path) -> Result<Identities> {
        let content = std::fs::read_to_string(path).map_err(Error::file(path))?;
        let keys = lines(&content).map(|line| {
            // What cannot be read is not shown: it may be a secret.
            x25519::Identity::from_str(line).map_err(|why| Error::Key {
                key: path.display().to_string(),
                why: format!("a line is no secret key of age ({why})"),
            })
        });
        let keys: Vec<_> = keys.collect::<Result<_>>()?;
        match keys.is_empty() {
            true => Err(Error::Key { key: path.display().to_string(), why: "it holds no secret key".into() }),
            false => Ok(Identities(keys)),
        }
    }
}

/// Makes a pair of keys: writes the secret one to a new file that nobody else may read, and returns the public one.
///
/// # Errors
/// [`Error::File`], also if the file is there.
pub fn make_key(path: &Path) -> Result<String> {
    use std::os::unix::fs::OpenOptionsExt;
    const PRIVATE: u32 = 0o600;
    let identity = x25519::Identity::generate();
    let public = identity.to_public().to_string();
    let text = format!("# public key: {public}\n{}\n", identity.to_string().expose_secret());
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path).map_err(Error::file(path))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(Error::file(path))?;
    Ok(public)
}

/// Compresses, and encrypts.
pub(crate) fn seal(plain: &[u8], recipients: &Recipients) -> Result<Vec<u8>> {
    let failed = |why: String| Error::Key { key: "encryption".into(), why };
    let compressed = zstd::bulk::compress(plain, COMPRESSION_LEVEL).map_err(|error| failed(error.to_string()))?;
    if recipients.is_empty() {
        return Ok(compressed);
    }
    let all = recipients.0.iter().map(|key| key as &dyn age::Recipient);
    let encryptor = age::Encryptor::with_recipients(all).map_err(|error| failed(error.to_string()))?;
    let mut sealed = Vec::with_capacity(compressed.len() + 512);
    let written = encryptor.wrap_output(&mut sealed).and_then(|mut writer| {
        writer.write_all(&compressed)?;
        writer.finish()
    });
    written.map_err(|error| failed(error.to_string()))?;
    Ok(sealed)
}

/// Decrypts, and decompresses to at most `plain_bytes_max`.
///
/// # Errors
/// What is wrong, for people.
pub(crate) fn open(
    sealed: &[u8],
    identities: &Identities,
    plain_bytes_max: usize,
) -> std::result::Result<Vec<u8>, String> {
    const AGE_BEGIN: &[u8] = b"age-encryption.org/";
    let decrypted;
    let compressed = match sealed.starts_with(AGE_BEGIN) {
        true => {
            decrypted = decrypt(sealed, identities)?;
            &decrypted
        }
        false => sealed,
    };
    let mut plain = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(compressed).map_err(|error| error.to_string())?;
    let read = decoder.take(plain_bytes_max as u64 + 1).read_to_end(&mut plain);
    read.map_err(|error| format!("it cannot be decompressed: {error}"))?;
    match plain.len() > plain_bytes_max {
        true => Err(format!("it holds more than {plain_bytes_max} bytes")),
        false => Ok(plain),
    }
}

fn decrypt(sealed: &[u8], identities: &Identities) -> std::result::Result<Vec<u8>, String> {
    if identities.0.is_empty() {
        return Err("it is encrypted: say where the secret key is (--identity FILE)".into());
    }
    let decryptor = age::Decryptor::new_buffered(sealed).map_err(|error| error.to_string())?;
    let all = identities.0.iter().map(|key| key as &dyn age::Identity);
    let mut reader = decryptor.decrypt(all).map_err(|error| match error {
        age::DecryptError::NoMatchingKeys => "it is encrypted, and the --identity is not one of its recipients".into(),
        other => format!("it cannot be decrypted: {other}"),
    })?;
    let mut plain = Vec::new();
    reader.read_to_end(&mut plain).map_err(|error| format!("it cannot be decrypted: {error}"))?;
    Ok(plain)
}

/// Bytes that nobody can guess.
pub(crate) fn random<const COUNT: usize>() -> Result<[u8; COUNT]> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; COUNT];
    std::fs::File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).map_err(Error::file(source))?;
    Ok(bytes)
}

/// The SHA-256 of bytes, in hexadecimal.
pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_with_its_key_only() {
        let directory = tempfile::tempdir().unwrap();
        let (ours, theirs) = (directory.path().join("ours"), directory.path().join("theirs"));
        let public = make_key(&ours).unwrap();
        make_key(&theirs).unwrap();
        assert!(make_key(&ours).is_err(), "a key is never overwritten");
        let plain = b"rows ".repeat(1000);
        let sealed = seal(&plain, &Recipients::read(&[public]).unwrap()).unwrap();
        let max = plain.len();
        assert_eq!(open(&sealed, &Identities::read(&ours).unwrap(), max).unwrap(), plain);
        let error = open(&sealed, &Identities::read(&theirs).unwrap(), max).unwrap_err();
        assert!(error.contains("recipients"), "{error}");
        assert!(open(&sealed, &Identities::default(), max).unwrap_err().contains("--identity"));
        assert!(open(&sealed, &Identities::read(&ours).unwrap(), max - 1).is_err());
        let mut damaged = sealed;
        let middle = damaged.len() - 20;
        damaged[middle] ^= 1;
        assert!(open(&damaged, &Identities::read(&ours).unwrap(), max).is_err());
    }

    #[test]
    fn plain_objects_need_no_key() {
        let sealed = seal(b"abc", &Recipients::default()).unwrap();
        assert_eq!(open(&sealed, &Identities::default(), 3).unwrap(), b"abc");
        assert!(open(b"nonsense", &Identities::default(), 3).is_err());
    }

    #[test]
    fn keys_that_are_none_are_refused() {
        assert!(Recipients::read(&["age1nonsense".into()]).is_err());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "# nothing\n").unwrap();
        assert!(Identities::read(&path).is_err());
        std::fs::write(&path, "SECRET-THAT-MUST-NOT-SHOW\n").unwrap();
        let error = Identities::read(&path).unwrap_err().to_string();
        assert!(!error.contains("MUST-NOT-SHOW"), "{error}");
    }
}

//! The place of the backups: a directory, or a bucket of an object store. Objects are small enough to be held in memory, and are written whole
//! or not at all.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use tokio::runtime::Runtime;
use url::Url;

use crate::error::{Error, Result};

/// No object is larger than this when it is read: a foreign one could be of any size.
pub(crate) const OBJECT_BYTES_MAX: u64 = 256 << 20;

/// A place of backups. Threads may share it.
#[derive(Debug)]
pub struct Target {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    name: String,
    runtime: Runtime,
    /// Of a directory: where it is.
    root: Option<PathBuf>,
}

/// An object's name below the target, and what the store says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) modified_seconds: i64,
}

impl Target {
    /// Opens a directory (`/backups`, `file:///backups`) or an object store (`s3://bucket/prefix`, `gs://…`, `az://…`), which takes its address and
    /// credentials from the environment, as the vendor's own tools do (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT` …). `create`: make the directory if it
    /// is missing.
    ///
    /// # Errors
    /// [`Error::BadTarget`], [`Error::File`].
    pub fn open(text: &str, create: bool) -> Result<Target> {
        let bad = |why: String| Error::BadTarget { target: text.to_owned(), why };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| bad(format!("cannot begin to talk to it: {error}")))?;
        let directory = match text.split_once("://") {
            Some(("file", path)) => Some(path),
            Some(_) => None,
            None => Some(text),
        };
        let (store, prefix): (Arc<dyn ObjectStore>, Path) = match directory {
            Some("") => return Err(bad("the directory's name is empty".into())),
            Some(directory) => (Arc::new(local(FilePath::new(directory), create)?), Path::default()),
            None => {
                // A second provider that was installed before is as good.
                let _was_there = rustls::crypto::ring::default_provider().install_default();
                let url = Url::parse(text).map_err(|error| bad(error.to_string()))?;
                let is_meant = |name: &str| ["aws_", "azure_", "google_"].iter().any(|begin| name.starts_with(begin));
                let options = std::env::vars().map(|(name, value)| (name.to_ascii_lowercase(), value));
                let options = options.filter(|(name, _)| is_meant(name));
                let opened = object_store::parse_url_opts(&url, options);
                let (store, prefix) = opened.map_err(|error| bad(error.to_string()))?;
                (Arc::from(store), prefix)
            }
        };
        let root = match directory {
            Some(directory) => Some(FilePath::new(directory).canonicalize().map_err(Error::file(directory))?),
            None => None,
        };
        Ok(Target { store, prefix, name: text.to_owned(), runtime, root })
    }

    /// As it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn failed(&self, what: String) -> impl FnOnce(object_store::Error) -> Error {
        let target = self.name.clone();
        move |source| Error::Target { target, what, source }
    }

    pub(crate) fn damaged(&self, object: &str, why: impl Into<String>) -> Error {
        Error::Damaged { target: self.name.clone(), object: object.to_owned(), why: why.into() }
    }

    /// Writes an object, durably; one of the name is replaced as a whole.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let path = self.path(name);
        let put = self.store.put(&path, PutPayload::from(bytes));
        self.runtime.block_on(put).map(drop).map_err(self.failed(format!("write {name}")))
    }

    /// Reads an object as a whole.
    pub(crate) fn get(&self, name: &str) -> Result<Vec<u8>> {
        let got = self.runtime.block_on(async {
            let found = self.store.get(&self.path(name)).await?;
            let size = found.meta.size;
            if size > OBJECT_BYTES_MAX {
                return Ok(Err(size));
            }
            found.bytes().await.map(Ok)
        });
        match got.map_err(self.failed(format!("read {name}")))? {
            Ok(bytes) => Ok(bytes.to_vec()),
            Err(size) => Err(self.damaged(name, format!("it has {size} bytes, more than any that Spate writes"))),
        }
    }

    /// All objects below `under`, in the order of their names.
    pub(crate) fn list(&self, under: &str) -> Result<Vec<Listed>> {
        let under_path = self.path(under);
        let listed = self.runtime.block_on(async {
            let mut stream = self.store.list(Some(&under_path));
            let mut found = Vec::new();
            while let Some(meta) = std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await {
                found.push(meta?);
            }
            Ok::<_, object_store::Error>(found)
        });
        let listed = listed.map_err(self.failed(format!("list {under}")))?;
        let mut names: Vec<Listed> = listed
            .into_iter()
            .filter_map(|meta| {
                let rest: Vec<String> =
                    meta.location.prefix_match(&self.prefix)?.map(|part| part.as_ref().to_owned()).collect();
                let modified_seconds = meta.last_modified.timestamp();
                Some(Listed { name: rest.join("/"), bytes: meta.size, modified_seconds })
            })
            .collect();
        names.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(names)
    }

    /// Removes an object; that it is gone already is as good. Nothing outside of the target: not through a link that somebody has put into it.
    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        if let Some(root) = &self.root {
            let mut path = root.clone();
            for part in name.split('/') {
                path.push(part);
                if std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
                    return Err(
                        self.damaged(name, format!("{} is a link: nothing is removed through it", path.display()))
                    );
                }
            }
        }
        match self.runtime.block_on(self.store.delete(&self.path(name))) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(format!("remove {name}"))(error)),
        }
    }
}

fn local(directory: &FilePath, create: bool) -> Result<LocalFileSystem> {
    if create {
        use std::os::unix::fs::DirBuilderExt;
        // Backups hold every row, and the password hashes.
        const PRIVATE: u32 = 0o700;
        let made = std::fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(directory);
        made.map_err(Error::file(directory))?;
    }
    let absolute = directory.canonicalize().map_err(Error::file(directory))?;
    let opened = LocalFileSystem::new_with_prefix(&absolute);
    let opened =
        opened.map_err(|error| Error::BadTarget { target: directory.display().to_string(), why: error.to_string() })?;
    Ok(opened.with_fsync(true).with_automatic_cleanup(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_written_listed_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("new/place");
        let target = Target::open(inside.to_str().unwrap(), true).unwrap();
        target.put("a/one", b"1".to_vec()).unwrap();
        target.put("a/two.json", b"22".to_vec()).unwrap();
        target.put("b/three", b"333".to_vec()).unwrap();
        target.put("a/one", b"one".to_vec()).unwrap();
        assert_eq!(target.get("a/one").unwrap(), b"one");
        let names: Vec<_> = target.list("a").unwrap().into_iter().map(|found| (found.name, found.bytes)).collect();
        assert_eq!(names, [("a/one".to_owned(), 3), ("a/two.json".to_owned(), 2)]);
        target.delete("b/three").unwrap();
        target.delete("b/three").unwrap();
        assert!(matches!(target.get("b/three"), Err(Error::Target { .. })));
    }

    #[test]
    fn targets_that_are_none_are_named() {
        for (wrong, part) in [("nonsense://x", "nonsense"), ("", "empty"), ("/no/such/place", "/no/such/place")] {
            let error = Target::open(wrong, false).unwrap_err().to_string();
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}

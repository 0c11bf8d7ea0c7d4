//! The consensus store: a client of etcd's JSON gateway (`/v3/…`), as far as a watcher needs it. Its documentation describes the requests: "gRPC
//! gateway", "Lease API", "Transaction".

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{Error, Result};

/// What is believed of a lease at most: it is renewed long before.
const LEASE_SECONDS_MAX: u64 = 3600;

/// A client with a lease. Everything that it writes under the lease is gone once the watcher is.
pub(crate) struct Etcd {
    agent: ureq::Agent,
    urls: Vec<String>,
    prefix: String,
    name: String,
    ttl: Duration,
    lease: Option<Lease>,
}

#[derive(Debug, Clone)]
struct Lease {
    id: String,
    /// Until when it surely lives, by this machine's own clock: counted from before it was renewed.
    until: Instant,
}

/// A key that was found.
#[derive(Debug, Clone)]
struct Found {
    key: String,
    value: String,
    create_revision: String,
}

fn encode(text: &str) -> String {
    base64_simd::STANDARD.encode_to_string(text)
}

fn decode(value: &Value) -> String {
    let bytes = base64_simd::STANDARD.decode_to_vec(value.as_str().unwrap_or_default()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first key that does not begin with `prefix`; it ends with a slash.
fn end_of(prefix: &str) -> String {
    let mut end = prefix[..prefix.len() - 1].to_owned();
    end.push('0');
    end
}

impl Etcd {
    pub(crate) fn new(urls: Vec<String>, cluster: &str, name: &str, ttl: Duration, timeout: Duration) -> Etcd {
        let agent = ureq::Agent::config_builder().timeout_global(Some(timeout)).build().new_agent();
        Etcd { agent, urls, prefix: format!("spate/{cluster}/"), name: name.to_owned(), ttl, lease: None }
    }

    /// Asks one server after the other, the one that answered last first.
    fn call(&mut self, path: &str, body: &Value) -> Result<Value> {
        let mut why = "no server is named".to_owned();
        for number in 0..self.urls.len() {
            let url = format!("{}/v3/{path}", self.urls[number].trim_end_matches('/'));
            let sent = self.agent.post(&url).content_type("application/json").send(&body.to_string());
            match sent.and_then(|mut answer| answer.body_mut().read_to_string()) {
                Ok(text) => {
                    self.urls.swap(0, number);
                    return serde_json::from_str(&text).map_err(|error| Error::Etcd(format!("{url}: {error}")));
                }
                Err(error) => why = format!("{url}: {error}"),
            }
        }
        Err(Error::Etcd(why))
    }

    /// Renews the lease, or takes another one.
    pub(crate) fn keep_alive(&mut self) -> Result<()> {
        let begun = Instant::now();
        if let Some(lease) = &self.lease {
            let id = lease.id.clone();
            let answer = self.call("lease/keepalive", &json!({ "ID": id }))?;
            let seconds = answer["result"]["TTL"].as_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            if seconds > 0 {
                self.lease = Some(Lease { id, until: begun + Duration::from_secs(seconds.min(LEASE_SECONDS_MAX)) });
                return Ok(());
            }
            self.lease = None;
        }
        let answer = self.call("lease/grant", &json!({ "TTL": self.ttl.as_secs().max(1).to_string() }))?;
        let id = answer["ID"].as_str().unwrap_or_default().to_owned();
        let seconds = answer["TTL"].as_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        if id.is_empty() {
            return Err(Error::Etcd(format!("no lease in the answer {answer}")));
        }
        self.lease = Some(Lease { id, until: begun + Duration::from_secs(seconds.min(LEASE_SECONDS_MAX)) });
        Ok(())
    }

    fn lease(&self) -> Result<String> {
        match &self.lease {
            Some(lease) if lease.until > Instant::now() => Ok(lease.id.clone()),
            _ => Err(Error::LeaseLost),
        }
    }

    fn range(&mut self, key: &str, end: Option<String>) -> Result<Vec<Found>> {
        let mut body = json!({ "key": encode(key) });
        if let Some(end) = end {
            body["range_end"] = Value::from(encode(&end));
        }
        let answer = self.call("kv/range", &body)?;
        let found = answer["kvs"].as_array().into_iter().flatten().map(|kv| Found {
            key: decode(&kv["key"]),
            value: decode(&kv["value"]),
            create_revision: kv["create_revision"].as_str().unwrap_or("0").to_owned(),
        });
        Ok(found.collect())
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Says what this watcher sees, for as long as its lease lives.
    pub(crate) fn vote(&mut self, view: &str) -> Result<()> {
        let (key, lease) = (self.key(&format!("view/{}", self.name)), self.lease()?);
        self.call("kv/put", &json!({ "key": encode(&key), "value": encode(view), "lease": lease }))?;
        Ok(())
    }

    /// What all watchers see whose leases live: name and view.
    pub(crate) fn votes(&mut self) -> Result<Vec<(String, String)>> {
        let prefix = self.key("view/");
        let found = self.range(&prefix, Some(end_of(&prefix)))?;
        let vote = |found: Found| Some((found.key.strip_prefix(&prefix)?.to_owned(), found.value));
        Ok(found.into_iter().filter_map(vote).collect())
    }

    /// True if this watcher leads: the key is its own, or nobody's until now.
    pub(crate) fn lead(&mut self) -> Result<bool> {
        let (key, lease) = (self.key("leader"), self.lease()?);
        let answer = self.call(
            "kv/txn",
            &json!({
                "compare": [{ "key": encode(&key), "target": "CREATE", "create_revision": "0", "result": "EQUAL" }],
                "success": [{ "request_put": { "key": encode(&key), "value": encode(&self.name), "lease": lease } }],
                "failure": [{ "request_range": { "key": encode(&key) } }],
            }),
        )?;
        if answer["succeeded"] == Value::Bool(true) {
            return Ok(true);
        }
        let held = &answer["responses"][0]["response_range"]["kvs"][0];
        Ok(decode(&held["value"]) == self.name && held["lease"].as_str() == Some(&lease))
    }

    /// Fails unless this watcher leads now, by the store's own word, and its lease lives.
    pub(crate) fn check_lead(&mut self) -> Result<()> {
        self.keep_alive()?;
        if self.lead()? { Ok(()) } else { Err(Error::LeaseLost) }
    }

    /// A value that stays when watchers go.
    pub(crate) fn get(&mut self, name: &str) -> Result<Option<String>> {
        let key = self.key(name);
        Ok(self.range(&key, None)?.into_iter().next().map(|found| found.value))
    }

    /// Writes such values, if this watcher still leads at that moment.
    pub(crate) fn put_as_leader(&mut self, values: &[(&str, &str)]) -> Result<()> {
        let leader = self.key("leader");
        let held = self.range(&leader, None)?.into_iter().next().ok_or(Error::LeaseLost)?;
        if held.value != self.name {
            return Err(Error::LeaseLost);
        }
        let puts: Vec<Value> = values
            .iter()
            .map(|(name, value)| json!({ "request_put": { "key": encode(&self.key(name)), "value": encode(value) } }))
            .collect();
        let answer = self.call(
            "kv/txn",
            &json!({
                "compare": [{
                    "key": encode(&leader), "target": "CREATE", "create_revision": held.create_revision, "result": "EQUAL",
                }],
                "success": puts,
                "failure": [],
            }),
        )?;
        if answer["succeeded"] == Value::Bool(true) { Ok(()) } else { Err(Error::LeaseLost) }
    }
}

-- What was measured of the way to an agent is looked up before steps whose reads are held against it.
CREATE INDEX tasks_by_peer ON tasks (peer_agent_id) WHERE peer_agent_id IS NOT NULL;

-- What people write: accounts, rules, projects, repositories, clusters,
-- applications. The tenant leads every key.

-- +goose Up
CREATE TABLE organisation (
    tenant_id      uuid PRIMARY KEY,
    digest_key     bytea NOT NULL,
    data_key       bytea NOT NULL,
    policy         text NOT NULL DEFAULT '',
    policy_version bigint NOT NULL DEFAULT 1,
    feed_floor     xid8 NOT NULL DEFAULT '0',
    created_at     timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE account (
    tenant_id     uuid NOT NULL,
    id            uuid NOT NULL,
    name          text NOT NULL CHECK (name <> ''),
    password_hash text NOT NULL,
    roles         text[] NOT NULL DEFAULT '{}',
    disabled      boolean NOT NULL DEFAULT false,
    created_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT account_name UNIQUE (tenant_id, name)
);

CREATE TABLE api_token (
    tenant_id  uuid NOT NULL,
    id         uuid NOT NULL,
    account_id uuid NOT NULL,
    name       text NOT NULL,
    prefix     text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, account_id) REFERENCES account ON DELETE CASCADE,
    CONSTRAINT api_token_name UNIQUE (tenant_id, account_id, name)
);

CREATE TABLE project (
    tenant_id   uuid NOT NULL,
    id          uuid NOT NULL,
    namespace   text NOT NULL DEFAULT '',
    name        text NOT NULL CHECK (name <> ''),
    labels      jsonb NOT NULL DEFAULT '{}',
    annotations jsonb NOT NULL DEFAULT '{}',
    finalizers  text[] NOT NULL DEFAULT '{}',
    spec        json NOT NULL,
    version     bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT project_name UNIQUE (tenant_id, name)
);

CREATE TABLE repository (
    tenant_id  uuid NOT NULL,
    id         uuid NOT NULL,
    url        text NOT NULL CHECK (url <> ''),
    type       text NOT NULL,
    name       text NOT NULL DEFAULT '',
    project    text NOT NULL DEFAULT '',
    username   text NOT NULL DEFAULT '',
    credential bytea,
    insecure   boolean NOT NULL DEFAULT false,
    registered boolean NOT NULL,
    fetched_at timestamptz,
    error      text NOT NULL DEFAULT '',
    error_at   timestamptz,
    version    bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT repository_url UNIQUE (tenant_id, url)
);

CREATE TABLE repository_template (
    tenant_id  uuid NOT NULL,
    id         uuid NOT NULL,
    url        text NOT NULL CHECK (url <> ''),
    type       text NOT NULL,
    name       text NOT NULL DEFAULT '',
    username   text NOT NULL DEFAULT '',
    credential bytea,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT repository_template_url UNIQUE (tenant_id, url)
);

CREATE TABLE ref (
    tenant_id     uuid NOT NULL,
    repository_id uuid NOT NULL,
    name          text COLLATE "C" NOT NULL,
    commit        text NOT NULL,
    PRIMARY KEY (tenant_id, repository_id, name),
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repository ON DELETE CASCADE
);

CREATE TABLE cluster (
    tenant_id     uuid NOT NULL,
    id            uuid NOT NULL,
    namespace     text NOT NULL DEFAULT '',
    name          text NOT NULL CHECK (name <> ''),
    labels        jsonb NOT NULL DEFAULT '{}',
    annotations   jsonb NOT NULL DEFAULT '{}',
    finalizers    text[] NOT NULL DEFAULT '{}',
    server        text NOT NULL DEFAULT '',
    kube_version  text NOT NULL DEFAULT '',
    api_versions  text[] NOT NULL DEFAULT '{}',
    fingerprint   text NOT NULL DEFAULT '',
    agent_id      text NOT NULL DEFAULT '',
    agent_version text NOT NULL DEFAULT '',
    readyz        text NOT NULL DEFAULT '',
    version       bigint NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT cluster_name UNIQUE (tenant_id, name)
);
CREATE UNIQUE INDEX cluster_server ON cluster (tenant_id, server) WHERE server <> '';

CREATE TABLE enrolment (
    tenant_id  uuid NOT NULL,
    id         uuid NOT NULL,
    cluster_id uuid NOT NULL,
    prefix     text NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    used_key   bytea,
    agent_id   text NOT NULL DEFAULT '',
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    attempts   json NOT NULL DEFAULT '[]',
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES cluster ON DELETE CASCADE
);
CREATE INDEX enrolment_cluster ON enrolment (tenant_id, cluster_id);

CREATE TABLE application (
    tenant_id   uuid NOT NULL,
    id          uuid NOT NULL,
    namespace   text COLLATE "C" NOT NULL CHECK (namespace <> ''),
    name        text COLLATE "C" NOT NULL CHECK (name <> ''),
    labels      jsonb NOT NULL DEFAULT '{}',
    annotations jsonb NOT NULL DEFAULT '{}',
    finalizers  text[] NOT NULL DEFAULT '{}',
    project     text NOT NULL,
    spec        json NOT NULL,
    cluster_id  uuid,
    deleting_at timestamptz,
    cascade     boolean NOT NULL DEFAULT false,
    version     bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT application_name UNIQUE (tenant_id, name, namespace),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES cluster
);
CREATE INDEX application_cluster ON application (tenant_id, cluster_id);
CREATE INDEX application_project ON application (tenant_id, project);

-- What changes often is apart from what people wrote.
CREATE TABLE application_status (
    tenant_id           uuid NOT NULL,
    application_id      uuid NOT NULL,
    generation          bigint NOT NULL DEFAULT 1,
    planned_generation  bigint NOT NULL DEFAULT 0,
    observed_generation bigint NOT NULL DEFAULT 0,
    history_id          bigint NOT NULL DEFAULT 0,
    pin                 json,
    revision            text NOT NULL DEFAULT '',
    revisions           text[] NOT NULL DEFAULT '{}',
    source_type         text NOT NULL DEFAULT '',
    target_id           uuid,
    accepted_id         uuid,
    operation_id        uuid,
    sync                text NOT NULL DEFAULT 'Unknown',
    health              text NOT NULL DEFAULT 'Unknown',
    health_cause        text NOT NULL DEFAULT '',
    health_since        timestamptz,
    resources           integer NOT NULL DEFAULT 0,
    compared_at         timestamptz,
    refreshed_at        timestamptz,
    hold                text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant_id, application_id),
    FOREIGN KEY (tenant_id, application_id) REFERENCES application ON DELETE CASCADE
) WITH (fillfactor = 70);

CREATE TABLE app_source (
    tenant_id      uuid NOT NULL,
    application_id uuid NOT NULL,
    idx            integer NOT NULL,
    repository_id  uuid NOT NULL,
    PRIMARY KEY (tenant_id, application_id, idx),
    FOREIGN KEY (tenant_id, application_id) REFERENCES application ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repository
);
CREATE INDEX app_source_repository ON app_source (tenant_id, repository_id);

-- owner is the part of the hub that wrote the condition and alone removes it.
CREATE TABLE condition (
    tenant_id      uuid NOT NULL,
    application_id uuid NOT NULL,
    owner          text NOT NULL,
    type           text NOT NULL,
    message        text NOT NULL,
    message_hash   text NOT NULL GENERATED ALWAYS AS (md5(message)) STORED,
    since          timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, application_id, owner, type, message_hash),
    FOREIGN KEY (tenant_id, application_id) REFERENCES application ON DELETE CASCADE
);

-- The fence of fairlock for PostgreSQL 13 and newer, version 1: one statement, which may be run again.
DO $install$
DECLARE
    stranger pg_catalog.text;
    installed integer;
    existing pg_catalog.oid[];
    revoke pg_catalog.text;
    path pg_catalog.text := pg_catalog.current_setting('search_path');
BEGIN
    -- No function of another schema runs with our rights.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    -- An older snapshot would hide from us what others have created.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'the fence cannot be installed at the isolation level %',
            current_setting('transaction_isolation') USING HINT = 'Install it in a transaction at READ COMMITTED.';
    END IF;
    -- Two runs at once would both create the schema.
    PERFORM pg_advisory_xact_lock(hashtextextended('fairlock_fence install', 0));
    IF to_regnamespace('"{schema}"') IS NULL THEN
        CREATE SCHEMA "{schema}";
    END IF;

    -- Read, not called: it may be a function of another role.
    SELECT substring(prosrc FROM '[0-9]+')::integer INTO installed FROM pg_proc
        WHERE oid = to_regprocedure('"{schema}".fairlock_fence_version()');
    IF installed > 1 THEN
        RAISE EXCEPTION 'schema {schema} has version % of the fence, and this script would install version 1', installed
            USING HINT = 'Use the fairlock that installed it, or a newer one.';
    END IF;

    -- `taken_by` is the transaction of the last take. Half of each page stays free for updates.
    CREATE TABLE IF NOT EXISTS "{schema}".fairlock_fences (
        name text COLLATE "C" NOT NULL CONSTRAINT fairlock_fences_pkey PRIMARY KEY,
        token bigint NOT NULL CHECK (token BETWEEN 0 AND 9007199254740991),
        store text NOT NULL,
        taken_by xid8
    ) WITH (fillfactor = 50);
    -- This revokes the privileges on single columns, too.
    FOR revoke IN
        SELECT DISTINCT 'REVOKE ALL ON TABLE "{schema}".fairlock_fences FROM '
            || CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END || ' CASCADE'
        FROM (
            SELECT relowner AS owner, relacl AS items FROM pg_class
                WHERE oid = to_regclass('"{schema}".fairlock_fences')
            UNION ALL
            SELECT relowner, attacl FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
                WHERE pg_class.oid = to_regclass('"{schema}".fairlock_fences')
        ) AS granted, aclexplode(granted.items) AS acl
        WHERE acl.grantee <> granted.owner
    LOOP
        EXECUTE revoke;
    END LOOP;
    existing := ARRAY(SELECT oid FROM pg_proc WHERE pronamespace = to_regnamespace('"{schema}"'));

    EXECUTE $sql$
        CREATE OR REPLACE FUNCTION "{schema}".fairlock_fence_version() RETURNS integer
            LANGUAGE sql IMMUTABLE AS 'SELECT 1'
    $sql$;

    -- Once for each hold, in a transaction of its own. Waits for open transactions of former holders.
    EXECUTE $sql$
        CREATE OR REPLACE FUNCTION "{schema}".fairlock_take(
            name text, token bigint, store text, wait_ms integer DEFAULT 5000
        ) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $take$
        DECLARE
            newest record;
            idle_limit interval := current_setting('idle_in_transaction_session_timeout');
        BEGIN
            IF (name <> '' AND octet_length(name) <= 2000 AND store <> '' AND wait_ms > 0
                AND token BETWEEN 1 AND 9007199254740991) IS NOT TRUE THEN
                RAISE EXCEPTION 'fairlock_take needs a name of 1 to 2000 bytes, a token from 1 to 2^53 - 1, '
                    'a store and a wait of at least 1 ms' USING ERRCODE = 'LK004';
            END IF;
            IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
                RAISE EXCEPTION 'fairlock_take of % is not in a transaction of its own', quote_literal(name)
                    USING ERRCODE = 'LK004',
                    HINT = 'Commit it before the transaction that calls fairlock_fence begins.';
            END IF;
            SELECT f.token, f.store INTO newest FROM "{schema}".fairlock_fences f
                WHERE f.name = fairlock_take.name COLLATE "C";
            IF NOT FOUND
                OR newest.token < fairlock_take.token AND newest.store = fairlock_take.store COLLATE "C" THEN
                -- A client that is stopped before its COMMIT would block the others without end.
                IF idle_limit = interval '0' OR idle_limit > interval '10 s' THEN
                    PERFORM set_config('idle_in_transaction_session_timeout', '10s', true);
                END IF;
                -- A take that a crash of the server undoes would let its former holder write.
                IF current_setting('synchronous_commit') = 'off' THEN
                    PERFORM set_config('synchronous_commit', 'on', true);
                END IF;
                PERFORM set_config('lock_timeout', wait_ms::text, true);
                PERFORM pg_advisory_xact_lock(
                    hashtextextended('fairlock_fence {schema} ' || name COLLATE "C", 0));
                INSERT INTO "{schema}".fairlock_fences AS f (name, token, store, taken_by)
                    VALUES (fairlock_take.name, fairlock_take.token, fairlock_take.store, pg_current_xact_id())
                    ON CONFLICT ON CONSTRAINT fairlock_fences_pkey
                    DO UPDATE SET token = excluded.token, taken_by = excluded.taken_by
                    WHERE f.token < excluded.token AND f.store = excluded.store;
                IF FOUND THEN
                    RETURN;
                END IF;
                SELECT f.token, f.store INTO newest FROM "{schema}".fairlock_fences f
                    WHERE f.name = fairlock_take.name COLLATE "C";
            END IF;
            IF newest.store <> fairlock_take.store COLLATE "C" THEN
                RAISE EXCEPTION 'the fence % belongs to the lock store %, not to %', quote_literal(name),
                    quote_literal(newest.store), quote_literal(fairlock_take.store) USING ERRCODE = 'LK003',
                    HINT = 'Tokens of two stores are not ordered. An operator can move the name to another store.';
            ELSIF newest.token > fairlock_take.token THEN
                RAISE EXCEPTION 'the lock % was lost: token % is older than %', quote_literal(name), token,
                    newest.token USING ERRCODE = 'LK001', HINT = 'Stop this work and acquire the lock again.';
            ELSIF (newest.token = fairlock_take.token) IS NOT TRUE THEN
                RAISE EXCEPTION 'token % of the lock % could not be taken', token, quote_literal(name)
                    USING ERRCODE = '40001', HINT = 'The row was changed at the same moment. Call it again.';
            END IF;
        END
        $take$
    $sql$;

    -- The first statement of each transaction of a holder. Until that transaction ends, no later holder can take the
    -- fence. To save time, it has no SET clause for the search path: each function, operator and type names its schema.
    -- For the same reason it looks for what is wrong only after a failure.
    EXECUTE $sql$
        CREATE OR REPLACE FUNCTION "{schema}".fairlock_fence(name text, token bigint, idle_ms integer DEFAULT 10000)
            RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $fence$
        DECLARE
            idle_limit pg_catalog.text;
            newest bigint;
            taken_by pg_catalog.xid8;
        BEGIN
            -- A holder that is stopped inside its transaction would block its successor without end.
            IF idle_ms OPERATOR(pg_catalog.>) 0
                AND (pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0'
                    OR pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval
                        OPERATOR(pg_catalog.>) (idle_ms OPERATOR(pg_catalog.*) '1 ms'::interval)) THEN
                idle_limit := pg_catalog.set_config(
                    'idle_in_transaction_session_timeout', idle_ms::pg_catalog.text, true);
            END IF;
            -- Behind a waiting take. With row locks alone, overlapping transactions of a former holder kept it waiting.
            PERFORM pg_catalog.pg_advisory_xact_lock_shared(
                pg_catalog.hashtextextended(
                    'fairlock_fence {schema} ' OPERATOR(pg_catalog.||) name COLLATE pg_catalog."C", 0));
            -- The row lock refuses a transaction whose snapshot is older than the last take.
            SELECT f.token, f.taken_by INTO newest, taken_by FROM "{schema}".fairlock_fences f
                WHERE f.name OPERATOR(pg_catalog.=) fairlock_fence.name COLLATE pg_catalog."C" FOR SHARE;
            -- `taken_by` is NULL in rows that were not taken here.
            IF newest OPERATOR(pg_catalog.=) token
                AND token OPERATOR(pg_catalog.>) 0
                AND idle_ms OPERATOR(pg_catalog.>) 0
                AND (taken_by OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id()) IS NOT TRUE THEN
                RETURN;
            END IF;
            IF (name OPERATOR(pg_catalog.<>) ''
                AND token OPERATOR(pg_catalog.>) 0
                AND token OPERATOR(pg_catalog.<=) 9007199254740991
                AND idle_ms OPERATOR(pg_catalog.>) 0) IS NOT TRUE THEN
                RAISE EXCEPTION 'fairlock_fence needs a name, a token from 1 to 2^53 - 1 and a limit of at least 1 ms'
                    USING ERRCODE = 'LK004';
            ELSIF newest OPERATOR(pg_catalog.=) token THEN
                RAISE EXCEPTION 'fairlock_take of % is in the same transaction', pg_catalog.quote_literal(name)
                    USING ERRCODE = 'LK004',
                    HINT = 'Commit it before the transaction that calls fairlock_fence begins.';
            ELSIF newest OPERATOR(pg_catalog.>) token THEN
                RAISE EXCEPTION 'the lock % was lost: token % is older than %', pg_catalog.quote_literal(name), token,
                    newest USING ERRCODE = 'LK001', HINT = 'Stop this work and acquire the lock again.';
            END IF;
            RAISE EXCEPTION 'token % of the lock % was not taken', token, pg_catalog.quote_literal(name)
                USING ERRCODE = 'LK002', HINT = 'Call fairlock_take first, in a transaction of its own.';
        END
        $fence$
    $sql$;

    -- Only of new functions, or those that were restored without privileges: later grants stay when this is run again.
    FOR revoke IN
        SELECT DISTINCT 'REVOKE ALL ON FUNCTION ' || pg_proc.oid::regprocedure || ' FROM '
            || CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END || ' CASCADE'
        FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) AS acl
        WHERE pronamespace = to_regnamespace('"{schema}"') AND acl.grantee <> proowner
            AND proname IN ('fairlock_take', 'fairlock_fence') AND (pg_proc.oid <> ALL (existing) OR proacl IS NULL)
    LOOP
        EXECUTE revoke;
    END LOOP;

    -- Last, so that nothing can change until we commit: a new trigger needs a stronger lock on the table, and others
    -- cannot replace our functions. Whoever owns the schema, the table or a function can change tokens, and run code
    -- with the rights of our role.
    LOCK TABLE "{schema}".fairlock_fences IN ROW EXCLUSIVE MODE;
    SELECT owned.what INTO stranger FROM (
        SELECT 'the schema', nspowner FROM pg_namespace WHERE oid = to_regnamespace('"{schema}"')
        UNION ALL
        SELECT 'the table fairlock_fences', relowner FROM pg_class
            WHERE oid = to_regclass('"{schema}".fairlock_fences')
        UNION ALL
        SELECT 'the function ' || proname, proowner FROM pg_proc
            WHERE pronamespace = to_regnamespace('"{schema}"') AND starts_with(proname, 'fairlock_')
    ) AS owned (what, owner) WHERE owned.owner <> quote_ident(current_user)::regrole LIMIT 1;
    IF stranger IS NOT NULL THEN
        RAISE EXCEPTION 'in the schema {schema}, % belongs to another role than %', stranger, current_user
            USING HINT = 'Install the fence as their owner, or in another schema.';
    END IF;
    -- Whoever may create a function there can offer one that is called instead of ours.
    SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END INTO stranger
        FROM pg_namespace, aclexplode(nspacl) AS acl
        WHERE oid = to_regnamespace('"{schema}"') AND acl.privilege_type = 'CREATE' AND acl.grantee <> nspowner LIMIT 1;
    IF stranger IS NOT NULL THEN
        RAISE EXCEPTION '% has the privilege CREATE on the schema {schema}', stranger
            USING HINT = 'Create a schema in which no other role has it, and install the fence there.';
    END IF;
    -- They change what is written, or run with the rights of our role.
    SELECT found.what INTO stranger FROM (
        SELECT 'the trigger ' || tgname FROM pg_trigger WHERE tgrelid = to_regclass('"{schema}".fairlock_fences')
        UNION ALL
        SELECT 'the rule ' || rulename FROM pg_rewrite WHERE ev_class = to_regclass('"{schema}".fairlock_fences')
        UNION ALL
        SELECT 'row security' FROM pg_class
            WHERE oid = to_regclass('"{schema}".fairlock_fences') AND (relrowsecurity OR relforcerowsecurity)
    ) AS found (what) LIMIT 1;
    IF stranger IS NOT NULL THEN
        RAISE EXCEPTION 'the table {schema}.fairlock_fences has %, which the fence does not allow', stranger
            USING HINT = 'Remove it, and find out who has created it.';
    END IF;
    PERFORM set_config('search_path', path, true);
END
$install$;

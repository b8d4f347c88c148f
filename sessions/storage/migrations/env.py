"""Run the migrations on the connection that the caller has opened; without one, print their SQL."""

from alembic import context

from tenuto.sessions.storage.tables import metadata


def run() -> None:
    if context.is_offline_mode():
        context.configure(dialect_name="sqlite", target_metadata=metadata, literal_binds=True)
    else:
        connection = context.config.attributes["connection"]
        context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


run()

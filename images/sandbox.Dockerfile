# syntax=docker/dockerfile:1
# The sandbox: the daemon, and what commands of most projects need.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked --workspace --bin mooring-sandbox && \
    install -D target/release/mooring-sandbox /out/mooring-sandbox

FROM debian:bookworm-slim
COPY images/sandbox-packages /tmp/sandbox-packages
RUN apt-get update && \
    sed 's/#.*//' /tmp/sandbox-packages | xargs apt-get install -y --no-install-recommends && \
    rm -rf /var/lib/apt/lists/* /tmp/sandbox-packages && \
    groupadd --gid 65532 agent && \
    useradd --uid 65532 --gid 65532 --home-dir /work/home --no-create-home --shell /bin/bash agent && \
    mkdir -p /work/project /work/home /work/state /work/threads
COPY --from=build /out/mooring-sandbox /usr/local/bin/mooring-sandbox
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/mooring-sandbox"]

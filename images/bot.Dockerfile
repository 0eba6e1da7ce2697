# syntax=docker/dockerfile:1
# The bot: the one Discord gateway. One static program, nothing else.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
ENV RUSTFLAGS="-C target-feature=+crt-static"
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    target=$(rustc -vV | sed -n 's/^host: //p') && \
    cargo build --release --locked --workspace --bin mooring-bot --target "$target" && \
    install -D "target/$target/release/mooring-bot" /out/usr/local/bin/mooring-bot && \
    install -D -m 644 /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ca-certificates.crt && \
    echo 'hosts: files dns' >/out/etc/nsswitch.conf && \
    echo 'mooring:x:65532:65532:mooring:/:/sbin/nologin' >/out/etc/passwd && \
    install -d -m 1777 /out/tmp

FROM scratch
COPY --from=build /out /
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/mooring-bot"]

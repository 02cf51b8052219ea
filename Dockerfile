# An image of Trellis:  docker build -t trellis .
#   docker run -d --name queue -p 11300:11300 -v jobs:/data trellis
#   docker run ... trellis -b /data --control /run/trellis/control --slots 4     (flags replace the ones below)
#   docker exec queue trellis status
ARG DEBIAN=trixie-slim
FROM debian:${DEBIAN} AS build
WORKDIR /src
COPY script ./script
COPY Cargo.toml ./
# Crates come over TLS.
RUN apt-get -q update && apt-get -q install -y --no-install-recommends ca-certificates && script/bootstrap
COPY . .
RUN cargo build --release --locked --bin trellis && strip target/release/trellis

FROM debian:${DEBIAN}
RUN useradd --system --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin trellis \
    && install -d -o trellis -g trellis -m 0700 /data /run/trellis
COPY --from=build /src/target/release/trellis /usr/bin/trellis
COPY --from=build /src/LICENSE /usr/share/doc/trellis/LICENSE
COPY --from=build /src/vendor/beanstalkd-c/tree/LICENSE /usr/share/doc/trellis/LICENSE.beanstalkd
USER trellis
VOLUME /data
EXPOSE 11300
# The supervisor is process 1: it takes SIGTERM itself, stops within ten seconds, and reaps what it inherits.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["trellis", "status", "--check"]
ENTRYPOINT ["trellis"]
CMD ["-b", "/data", "--control", "/run/trellis/control"]

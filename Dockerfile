# The image of a node: two static programs and nothing else, no shell either.
# `make image` lays them out under dist/image and then builds this.
FROM scratch
ARG TARGETARCH
COPY dist/image/${TARGETARCH}/ /usr/local/bin/
ENV PATH=/usr/local/bin
# A user that owns nothing. Kubernetes wants to see that it is not root, so it is
# a number.
USER 65532:65532
# Clients, peers, raft, HTTP, gossip.
EXPOSE 7400 7401 7402 7480 7946 7946/udp
ENTRYPOINT ["/usr/local/bin/cachenode"]
CMD ["run"]

"""The running exporter: polls servers, serves endpoints, and is a tap of requests."""

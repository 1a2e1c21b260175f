"""The running exporter: polls servers, serves endpoints, relays requests where it is a tap."""

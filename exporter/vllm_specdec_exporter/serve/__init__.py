"""The running exporter: polls servers, serves endpoints, and relays requests as a
tap.
"""
